package report

// pageCSS sets the page. Colours are those of the charts (svg.CSS) and a few of its own; sizes are in rem, so that the reader's choice
// of letter size holds. On paper, which does not scroll, a rem is so small that the widest table fits, and a long command goes on in the next
// line: else they are cut off. A chart that is higher than a sheet is made smaller: a browser prints over it what comes next.
const pageCSS = `
:root{--good:#00694f;--good-bg:#e3f4ee;--bad:#a63a00;--bad-bg:#fdeee4;--open:#57606a;--open-bg:#eef0f3;--warn:#7a5c00;--warn-bg:#fbf3d9;--raised:#f6f7f9;--link:#1257a0;--shade:rgba(0,0,0,.14)}
@media (prefers-color-scheme:dark){:root{--good:#4fd1ae;--good-bg:#10312a;--bad:#ff9e69;--bad-bg:#3a2013;--open:#b3bbc6;--open-bg:#252b33;--warn:#e6c95a;--warn-bg:#332b10;--raised:#1b1f26;--link:#7cbcf5;--shade:rgba(255,255,255,.16)}}
@media print{:root{--good:#00694f;--good-bg:#fff;--bad:#a63a00;--bad-bg:#fff;--open:#57606a;--open-bg:#fff;--warn:#7a5c00;--warn-bg:#fff;--raised:#fff;--link:#1b1f24;--shade:transparent}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0 auto;padding:2.5rem 1.5rem 4rem;max-width:55.5rem;background:var(--tv-surface);color:var(--tv-ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:break-word}
h1,h2,h3,h4{line-height:1.2;text-wrap:balance;margin:0}
h1{font-size:2rem;letter-spacing:-.02em;font-weight:700}
h2{font-size:1.35rem;letter-spacing:-.01em;margin:3.25rem 0 .75rem;padding-top:1.1rem;border-top:1px solid var(--tv-grid)}
h3{font-size:1.05rem;margin:2rem 0 .5rem}
h4{font-size:1rem;margin:1.5rem 0 .25rem;color:var(--tv-ink-2)}
.no{color:var(--tv-ink-2);font-weight:500;margin-right:.55em}
p,ul,ol{max-width:44rem;margin:.6rem 0;text-wrap:pretty}
li{margin:.2rem 0}
li::marker{color:var(--tv-ink-2)}
a{color:var(--link);text-underline-offset:.15em;text-decoration-thickness:1px}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.875em}
code{background:var(--raised);padding:.1em .3em;border-radius:3px}
.sub{max-width:none;color:var(--tv-ink-2);margin:.5rem 0 0;font-size:.95rem}
.lead{margin-top:1.5rem}
.lead>p{font-size:1.1rem;line-height:1.5}
nav{margin:1.75rem 0 0;font-size:.9rem}
nav ol{list-style:none;padding:0;margin:0;columns:2;column-gap:2rem;max-width:none}
nav li{margin:0;break-inside:avoid}
nav a{display:flex;padding:.22rem 0;color:var(--tv-ink);text-decoration:none}
nav a:hover{text-decoration:underline}
nav .no{flex:none;width:1.4em;text-align:right}
section:target>h2,section:target>h3{text-decoration:underline;text-decoration-color:var(--tv-axis);text-underline-offset:.2em;text-decoration-thickness:2px}
figure{margin:1.5rem 0 2rem}
figure .narrow{display:none}
figcaption{font-size:.9rem;line-height:1.45;color:var(--tv-ink-2);max-width:44rem;margin-top:.75rem}
figcaption strong{color:var(--tv-ink)}
figcaption .no{color:var(--tv-ink);font-weight:600;margin-right:.3em}
.grid{display:grid;gap:1.5rem 1.75rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}
.grid.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,15.5rem),1fr))}
.grid>div{min-width:0}
.small-title{font-size:.9rem;font-weight:600;margin:0 0 .4rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;line-height:1.35}
.table{margin:1.25rem 0 1.75rem}
.scroll{overflow-x:auto;scrollbar-width:thin;background:linear-gradient(90deg,var(--tv-surface) 30%,transparent) left/2.5rem 100% no-repeat local,linear-gradient(270deg,var(--tv-surface) 30%,transparent) right/2.5rem 100% no-repeat local,linear-gradient(90deg,var(--shade),transparent) left/.6rem 100% no-repeat scroll,linear-gradient(270deg,var(--shade),transparent) right/.6rem 100% no-repeat scroll}
.table .caption{font-weight:600;font-size:.9rem;margin:0 0 .6rem}
.short{white-space:nowrap}
.long{min-width:12rem}
th,td{text-align:left;vertical-align:top;padding:.42rem .8rem .42rem 0;font-weight:400;border-bottom:1px solid var(--tv-grid);unicode-bidi:isolate}
th:last-child,td:last-child{padding-right:.15rem}
th.r,td.r{text-align:right;padding-left:.8rem;padding-right:1.15rem;white-space:nowrap}
th.r:last-child,td.r:last-child{padding-right:1.15rem}
thead th{vertical-align:bottom;font-weight:600;font-size:.82rem;border-bottom:1px solid var(--tv-axis)}
thead .groups th,thead .groups td{border-bottom:0;padding-bottom:.1rem;text-align:center;color:var(--tv-ink-2)}
thead .groups span{display:block;border-bottom:1px solid var(--tv-grid);padding-bottom:.2rem}
.unit{display:block;font-weight:400;color:var(--tv-ink-2)}
.range{display:block;font-size:.78rem;color:var(--tv-ink-2)}
.best{font-weight:700}
.best .range{font-weight:400}
td.r{position:relative}
.star{position:absolute;margin-left:.2rem;color:var(--tv-better);font-size:.75rem;line-height:1.6;font-weight:400}
.rank{color:var(--tv-ink-2);font-weight:400;font-size:.78em;margin-right:.2em}
.none{color:var(--tv-ink-2);font-style:italic;white-space:normal}
.muted th,.muted td{color:var(--tv-ink-2);font-weight:400}
.total th,.total td{border-top:1px solid var(--tv-axis)}
tr.group th{padding-top:1.1rem;font-weight:600;border-bottom:1px solid var(--tv-axis)}
td.bar{background:linear-gradient(var(--raised),var(--raised)) no-repeat left/var(--w,0%) 100%}
sup{font-size:.7em;line-height:0;color:var(--tv-ink-2);margin-left:.1em}
.notes{font-size:.8rem;line-height:1.45;color:var(--tv-ink-2);margin-top:.6rem}
.notes p{margin:.15rem 0}
.none.short{white-space:nowrap}
.none.words{display:inline-block;min-width:7.5rem}
.dense table{font-size:.82rem}
.dense th,.dense td{padding-right:.55rem}
.dense th.r,.dense td.r{padding-left:.3rem;padding-right:.95rem}
.compact table{font-size:.8rem}
.compact th,.compact td{padding-top:.2rem;padding-bottom:.2rem}
.badge{display:inline-block;padding:.05em .55em;border-radius:3px;font-size:.8rem;font-weight:600;line-height:1.5;color:var(--open);background:var(--open-bg)}
.badge.good{color:var(--good);background:var(--good-bg)}
.badge.bad{color:var(--bad);background:var(--bad-bg)}
.badge.warn{color:var(--warn);background:var(--warn-bg)}
.badge.open{box-shadow:inset 0 0 0 1px var(--tv-axis);background:none}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,11rem),1fr));gap:0 1.75rem;margin:1.5rem 0}
.tile{border-top:2px solid var(--tv-ink);padding:.55rem 0 .9rem}
.tile p{margin:0}
.tile .what{font-size:.82rem;color:var(--tv-ink-2)}
.tile .value{font-size:1.6rem;line-height:1.25;font-weight:650;letter-spacing:-.01em}
.tile .note{font-size:.82rem;color:var(--tv-ink-2)}
.tile.good{border-color:var(--good)}.tile.bad{border-color:var(--bad)}.tile.warn{border-color:var(--warn)}.tile.open{border-color:var(--tv-axis)}
.callout{margin:1.25rem 0;padding:.7rem 1rem;border-left:3px solid var(--tv-axis);background:var(--raised)}
.callout>:first-child{margin-top:0}.callout>:last-child{margin-bottom:0}
.callout .title{font-weight:600}
.callout.good{border-color:var(--good)}.callout.bad{border-color:var(--bad)}.callout.warn{border-color:var(--warn)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:0 2rem;margin:1rem 0;font-size:.9rem}
.facts>div{display:flex;gap:1rem;justify-content:space-between;padding:.35rem 0;border-bottom:1px solid var(--tv-grid)}
dt{color:var(--tv-ink-2);flex:none;max-width:50%}
dd{margin:0;text-align:right;min-width:0}
details{margin:.75rem 0}
summary{cursor:pointer;font-size:.9rem;color:var(--link)}
details.data{margin-top:.5rem}
details.data summary{font-size:.82rem}
figure.code{margin:1rem 0}
figure.code figcaption{margin:0 0 .35rem}
pre{margin:0;padding:.7rem .9rem;background:var(--raised);overflow-x:auto;border-radius:4px;line-height:1.45}
.flag{white-space:nowrap}
pre code{background:none;padding:0}
footer{margin-top:3.5rem;padding-top:1rem;border-top:1px solid var(--tv-grid);font-size:.82rem;color:var(--tv-ink-2)}
@media (min-width:76rem){
body.with-nav{max-width:72rem;display:grid;grid-template-columns:13rem minmax(0,54rem);column-gap:3.5rem}
body.with-nav>header,body.with-nav>main,body.with-nav>footer{grid-column:2}
body.with-nav>nav{grid-column:1;grid-row:1/span 3;position:sticky;top:2.5rem;align-self:start;margin:0;max-height:calc(100vh - 5rem);overflow-y:auto}
body.with-nav>nav ol{columns:1}
}
@media (max-width:46rem){
body{padding:1.25rem 1rem 3rem}
h1{font-size:1.55rem}
h2{font-size:1.2rem;margin-top:2.5rem}
.lead>p{font-size:1rem}
figure .wide{display:none}
figure .narrow{display:block}
figure .narrow .tv{width:100%;max-width:30rem}
nav ol{columns:1}
.scroll{margin-left:-1rem;margin-right:-1rem;padding:0 1rem}
table{font-size:.82rem}
th,td{padding-right:.6rem}
th.r,td.r{padding-left:.4rem;padding-right:1rem}
}
@media print{
@page{margin:18mm 16mm}
html{font-size:9.5pt}
figure svg{max-height:225mm}
body,body.with-nav{display:block;max-width:none;padding:0}
nav{display:none}
h2,h3,h4,.caption,.small-title,summary{break-after:avoid}
h2,h3,h4,.caption,.small-title,summary,figcaption,figure,tr,.callout,.tile{break-inside:avoid}
.scroll,pre{overflow:visible}
.scroll{background:none}
figcaption{break-before:avoid}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
tr.group{break-after:avoid}
thead{display:table-header-group}
details::details-content{content-visibility:visible;block-size:auto}
summary{list-style:none;color:inherit;font-weight:600}
a{text-decoration:none}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
`
