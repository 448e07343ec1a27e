package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/trivium-ml/trivium"
)

// npyFile makes a NumPy file of version 1.
func npyFile(descr, shape string, body []byte) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	p := append([]byte(npyMagic), 1, 0)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(head)))
	return append(append(p, head...), body...)
}

func float32s(v ...float32) (p []byte) {
	for _, x := range v {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
	}
	return p
}

func parquetBytes[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows, options...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBadInput is the list of mistakes in data, each with what its message must hold: file, place, and what to do.
func TestBadInput(t *testing.T) {
	images := idxFile(2051, []uint32{2, 2, 2}, make([]byte, 8))
	labels := idxFile(2049, []uint32{2}, []byte{0, 1})
	zipped := gz([]byte("label,a\n0,1\n1,2\n0,3\n1,4\n"))
	type files map[string][]byte
	text := func(name string, lines ...string) files { return files{name: []byte(strings.Join(lines, "\n") + "\n")} }
	for name, c := range map[string]struct {
		files files
		d     trivium.Data // Source is set to the folder
		want  []string
	}{
		"idx cut":           {files: files{"a-images-idx3-ubyte": images[:len(images)-1], "a-labels-idx1-ubyte": labels}, want: []string{"a-images-idx3-ubyte", "offset 23", "24 bytes"}},
		"idx too long":      {files: files{"a-images-idx3-ubyte": append(images, 0), "a-labels-idx1-ubyte": labels}, want: []string{"offset 24", "1 bytes follow"}},
		"idx wrong magic":   {files: files{"a-images-idx3-ubyte": labels}, want: []string{"a-images-idx3-ubyte", "offset 0", "want magic 2051 (images), found 2049 (labels)"}},
		"idx wrong labels":  {files: files{"a-images-idx3-ubyte": images, "a-labels-idx1-ubyte": images}, want: []string{"a-labels-idx1-ubyte", "want magic 2049 (labels), found 2051"}},
		"idx counts":        {files: files{"a-images-idx3-ubyte": images, "a-labels-idx1-ubyte": idxFile(2049, []uint32{3}, []byte{0, 1, 1})}, want: []string{"a-labels-idx1-ubyte", "3 labels, and 2 rows"}},
		"idx header cut":    {files: files{"a-images-idx3-ubyte": images[:9]}, want: []string{"offset 9", "ends inside the header"}},
		"idx label outside": {files: files{"a-images-idx3-ubyte": images, "a-labels-idx1-ubyte": idxFile(2049, []uint32{2}, []byte{0, 7})}, d: trivium.Data{Classes: 3}, want: []string{"a-labels-idx1-ubyte", "row 1", "offset 9", "label 7 is outside the 3 classes"}},
		"idx scale":         {files: files{"a-images-idx3-ubyte": images, "a-labels-idx1-ubyte": labels}, d: trivium.Data{Scale: "minmax"}, want: []string{"scale", "scaling is for tables"}},

		"csv ragged":             {files: text("a.csv", "label,a,b", "0,1,2", "1,3"), want: []string{"a.csv", "line 3", "want 3 fields", "found 2"}},
		"csv too many":           {files: text("a.csv", "label,a,b", "0,1,2", "1,3,4,5"), want: []string{"a.csv", "line 3", "want 3 fields", "found 4"}},
		"csv text":               {files: text("a.csv", "label,a,b", "0,1,2", "1,red,2"), want: []string{"a.csv", "line 3", `column "a"`, `"red"`, "--categorical a"}},
		"csv commas":             {files: text("a.csv", "label;a", "0;1", "1;2,5"), want: []string{"a.csv", "line 3", `column "a"`, `found "2,5": a number has a point, as in 2.5, and no commas`}},
		"csv name's comma":       {files: text("a.csv", `label,"a,b"`, "0,1", "1,red"), want: []string{"line 3", `column "a,b"`, `--categorical 'a\,b'`}},
		"csv cut name":           {files: text("a.csv", `label,"a,b"`, "0,1"), d: trivium.Data{Drop: []string{"a"}}, want: []string{"drop", `no column "a"`, `the comma of a name is \,`}},
		"csv missing":            {files: text("a.csv", "label,a,b", "0,1,2", "1,,2"), want: []string{"line 3", `column "a"`, "missing", "--missing mean, zero or drop"}},
		"csv NaN":                {files: text("a.csv", "label,a,b", "0,1,2", "1,NaN,2"), want: []string{"line 3", `column "a"`, "NaN: the value is missing; say what to do with --missing"}},
		"csv Inf":                {files: text("a.csv", "label,a,b", "0,1,2", "1,3,-inf"), d: trivium.Data{Missing: "mean"}, want: []string{"line 3", `column "b"`, "-Inf is not a finite number"}},
		"csv too large":          {files: text("a.csv", "label,a", "0,1", "1,1e39"), want: []string{"line 3", `column "a"`, "1e+39 is not a finite number of 32 bits"}},
		"csv quote":              {files: text("a.csv", "label,a", "0,1", `1,"3`), want: []string{"line 3", "double quote", "never closed"}},
		"csv after quote":        {files: text("a.csv", "label,a", "0,1", `1,"3"4`), want: []string{"line 3", "follows a closing quote"}},
		"csv twice":              {files: text("a.csv", "label,a,a", "0,1,2"), want: []string{"a.csv", `two columns are called "a"; give one of them another name`}},
		"csv header only":        {files: text("a.csv", "label,a"), want: []string{"a.csv", "no rows after the header"}},
		"csv no column":          {files: text("a.csv", "label,a", "0,1"), d: trivium.Data{Label: "target"}, want: []string{"a.csv", "label", `no column "target"`, "label, a"}},
		"csv no drop":            {files: text("a.csv", "label,a", "0,1"), d: trivium.Data{Drop: []string{"z"}}, want: []string{"drop", `no column "z"`}},
		"csv label text":         {files: text("a.csv", "label,a", "0,1", "1,2", "zero,3"), want: []string{"line 4", `column "label"`, `"zero"`, "--categorical label"}},
		"csv label absent":       {files: text("a.csv", "label,a", "0,1", "1,2", ",3"), d: trivium.Data{Missing: "mean"}, want: []string{"line 4", `column "label"`, "label is missing", "drop"}},
		"csv label range":        {files: text("a.csv", "a,label", "0,1", "1,2", "4,3"), d: trivium.Data{Classes: 3, Label: "a"}, want: []string{"line 4", `column "a"`, "label 4 is outside the 3 classes"}},
		"csv weight":             {files: text("a.csv", "label,a,w", "0,1,1", "1,2,-1"), d: trivium.Data{Weight: "w"}, want: []string{"line 3", `column "w"`, "want a weight of 0 or more"}},
		"csv large label":        {files: text("a.csv", "label,a", "1,1", "16777217,2", "16777216,3"), d: trivium.Data{Train: ":"}, want: []string{"a.csv", "line 3", `column "label"`, "label 16777216 is too large for a class", "categorical"}},
		"csv weightless":         {files: text("a.csv", "label,a,w", "0,1,0", "1,2,0", "1,2,1"), d: trivium.Data{Weight: "w", Train: "0:2", Test: "2:"}, want: []string{"train", "the weights of its 2 rows are all 0"}},
		"csv test weights":       {files: text("a.csv", "label,a,w", "0,1,1", "1,2,0", "1,2,0"), d: trivium.Data{Weight: "w", Train: "0:1", Test: "1:"}, want: []string{"test", "the weights of its 2 rows are all 0"}},
		"csv no class":           {files: text("a.csv", "label,a", "0,1", "1,2"), d: trivium.Data{Train: ":", ClassWeight: "0=0,1=0"}, want: []string{"train", "the weights of its 2 rows are all 0"}},
		"csv class weight twice": {files: text("a.csv", "label,a", "0,1", "1,2"), d: trivium.Data{Train: ":", ClassWeight: "1=3,1=2"}, want: []string{"class_weight", `class "1" has two weights`}},
		"csv class weight":       {files: text("a.csv", "label,a", "0,1", "1,2"), d: trivium.Data{Train: ":", ClassWeight: "2=3"}, want: []string{"class_weight", `no class "2"`, "0, 1"}},
		"csv all dropped":        {files: text("a.csv", "label,a,b", "0,,1", "1,,2"), d: trivium.Data{Train: ":", Missing: "drop"}, want: []string{"train", "no rows are left"}},
		"csv no columns":         {files: text("a.csv", "label,a", "0,1", "1,2"), d: trivium.Data{Drop: []string{"a"}}, want: []string{"a.csv", "no column is left"}},

		"csv UTF-16":        {files: text("a.csv", "\xff\xfel\x00a\x00b\x00e\x00l\x00,\x00a\x00"), want: []string{"a.csv", "UTF-16", "UTF-8"}},
		"csv bare UTF-16":   {files: text("a.csv", "l\x00,\x00a\x00"), want: []string{"a.csv", "UTF-16", "UTF-8"}},
		"csv zipped":        {files: files{"a.csv": []byte("PK\x03\x04\x14\x00")}, want: []string{"a.csv", "ZIP archive", "unpack it, or pack it with gzip"}},
		"csv zstd":          {files: files{"a.csv": []byte("\x28\xb5\x2f\xfd\x04")}, want: []string{"a.csv", "packed with zstd", "pack it with gzip"}},
		"csv CR":            {files: files{"a.csv": []byte("label,a\r0,1\r1,2\r")}, want: []string{"a.csv", "carriage returns alone"}},
		"csv other commas":  {files: text("a.csv", "label|a", "0|1", "1|2"), want: []string{"a.csv", "one column alone", "a comma, a tab or a semicolon"}},
		"csv other flag":    {files: text("a.csv", "label|a", "0|1", "1|2"), d: trivium.Data{Categorical: []string{"a"}}, want: []string{"a.csv", `no column "a"`, "a comma, a tab or a semicolon"}},
		"csv few classes":   {files: text("a.csv", "label,a", "red,0", "green,1"), d: trivium.Data{Train: ":", Classes: 3}, want: []string{"a.csv", "3 classes are declared, and the labels have 2 values: green, red; leave --classes out, or write the labels as the numbers 0 to 2"}},
		"csv odd name":      {files: text("a.csv", "label,# a", "0,1", "1,x"), want: []string{"line 3", `--categorical '# a', or leave it out with --drop '# a'`}},
		"csv book":          {files: text("a.csv", "label,a", "0,1", "1,"+strings.Repeat("ß", 50)), want: []string{"line 3", `found "` + strings.Repeat("ß", 30) + `…";`}},
		"jsonl array file":  {files: text("a.jsonl", `[{"label":0,"a":1},`, `{"label":1,"a":2}]`), want: []string{"line 1", "it is a JSON array; want an object a line"}},
		"jsonl pretty":      {files: text("a.jsonl", `{`, `"label":0}`), want: []string{"line 1", "the object does not end in its line"}},
		"jsonl UTF-16":      {files: text("a.jsonl", "\xfe\xff\x00{\x00}"), want: []string{"a.jsonl", "UTF-16", "UTF-8"}},
		"csv Latin-1":       {files: text("a.csv", "label,a", "0,Rome", "1,M\xfcnchen"), d: trivium.Data{Categorical: []string{"a"}}, want: []string{"a.csv", "line 3", `column "a"`, `"M\xfcnchen" is not in UTF-8`}},
		"csv Latin-1 label": {files: text("a.csv", "label,a", "red,0", "gr\xfcn,1"), d: trivium.Data{Categorical: []string{"label"}}, want: []string{"a.csv", "line 3", `column "label"`, "not in UTF-8"}},
		"csv Latin-1 name":  {files: text("a.csv", "label,gr\xf6\xdfe", "0,1", "1,2"), want: []string{"a.csv", `"gr\xf6\xdfe" of column 1 is not in UTF-8`}},
		"libsvm no column":  {files: text("a.libsvm", "1", "0", "1", "0", "1"), want: []string{"a.libsvm", "no column"}},
		"libsvm index 0":    {files: text("a.libsvm", "1 1:1", "0 0:1"), want: []string{"a.libsvm", "line 2", "index 0", "start at 1", "zero_based=False"}},
		"libsvm order":      {files: text("a.libsvm", "1 1:1", "0 3:1 2:1"), want: []string{"a.libsvm", "line 2", "index 2 follows 3", "ascending"}},
		"libsvm width":      {files: text("a.libsvm", "1 1:1", "0 9:1"), d: trivium.Data{Columns: 8}, want: []string{"a.libsvm", "line 2", "index 9 is beyond the width of 8"}},
		"libsvm value":      {files: text("a.libsvm", "1 1:1", "0 9:x"), want: []string{"line 2", "index 9", `found "x"`}},
		"libsvm NaN":        {files: text("a.libsvm", "1 1:1", "0 9:nan"), want: []string{"line 2", "index 9", "not a finite number"}},
		"libsvm pair":       {files: text("a.libsvm", "1 1:1", "0 9"), want: []string{"line 2", `want index:value, found "9"`}},
		"libsvm label":      {files: text("a.libsvm", "1 1:1", "yes 9:1"), want: []string{"line 2", "label", `"yes"`}},
		"libsvm no label":   {files: text("a.libsvm", "1 1:1", "9:1"), want: []string{"line 2", "want a label first"}},
		"libsvm classes":    {files: text("a.libsvm", "1 1:1", "2 1:1", "0 2:1", "5 3:1"), d: trivium.Data{Classes: 3}, want: []string{"line 4", "label 5 is outside the 3 classes"}},
		"libsvm scale":      {files: text("a.libsvm", "1 1:1", "0 2:1"), d: trivium.Data{Scale: "standard"}, want: []string{"scale", "sparse", "fill every cell"}},
		"libsvm huge":       {files: text("a.libsvm", "1 1:1", "0 4294967296:1"), want: []string{"line 2", "beyond the largest"}},
		"libsvm test wide":  {files: files{"train.libsvm": []byte("1 1:1\n0 2:1\n"), "test.libsvm": []byte("1 1:1\n0 7:1\n")}, d: trivium.Data{Columns: 3}, want: []string{"test.libsvm", "line 2", "index 7 is beyond the width of 3"}},

		"jsonl missing":    {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1}`), want: []string{"a.jsonl", "line 2", `field "a" is missing`}},
		"jsonl extra":      {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1,"a":2,"b":3}`), want: []string{"line 1", `field "b" is missing, which line 2 has`}},
		"jsonl no array":   {files: text("a.jsonl", `{"label":0,"b":[1,2],"a":1}`, `{"label":1,"a":2}`), d: trivium.Data{Drop: []string{"b.0"}}, want: []string{"line 2", `field "b" is missing, which line 1 has`}},
		"jsonl label gone": {files: text("a.jsonl", `{"a":1,"b":[1,0]}`, `{"a":2}`), d: trivium.Data{Label: "b.1", Missing: "mean"}, want: []string{"line 2", `field "b" is missing, which line 1 has`}},
		"jsonl late":       {files: text("a.jsonl", append(slices.Repeat([]string{`{"label":0,"a":1}`}, 100), `{"label":1,"a":2,"b":3}`)...), want: []string{"line 101", `field "b" is in none of the first 100 rows`, "label, a"}},
		"jsonl twice":      {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1,"a":2,"a":3}`), want: []string{"line 2", `field "a" occurs twice`}},
		"jsonl nested":     {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1,"a":{"b":1}}`), want: []string{"line 2", `column "a"`, "it holds objects", "--drop"}},
		"jsonl array":      {files: text("a.jsonl", `{"label":0,"a":[1,2]}`, `{"label":1,"a":[1]}`), want: []string{"line 2", `column "a"`, "array of 2 values", "as in line 1", "found 1", "--drop"}},
		"jsonl cut":        {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1,"a":`), want: []string{"line 2", "end of the line"}},
		"jsonl junk":       {files: text("a.jsonl", `{"label":0,"a":1}`, `hello`), want: []string{"line 2", "want '{'"}},
		"jsonl text":       {files: text("a.jsonl", `{"label":0,"a":1}`, `{"label":1,"a":"red"}`, `{"label":1,"a":3}`), want: []string{"line 2", `column "a"`, `"red"`}},

		"npy magic":   {files: files{"a.npy": []byte("not a NumPy file")}, want: []string{"a.npy", "offset 0", "magic string"}},
		"npy version": {files: files{"a.npy": append([]byte(npyMagic), 9, 0, 0, 0, 0, 0)}, want: []string{"offset 6", "version 1, 2 or 3, found 9"}},
		"npy header":  {files: files{"a.npy": append(append([]byte(npyMagic), 1, 0, 5, 0), "{'a'}"...)}, want: []string{"offset 10", "descr, fortran_order and shape"}},
		"npy long":    {files: files{"a.npy": append([]byte(npyMagic), 1, 0, 0xff, 0xff, '{')}, want: []string{"offset 8", "65535 bytes does not fit"}},
		"npy type":    {files: files{"a.npy": npyFile("<c8", "2, 2", make([]byte, 32))}, want: []string{"a.npy", `"<c8"`, "not read"}},
		"npy objects": {files: files{"a.npy": npyFile("|O", "2, 2", make([]byte, 32))}, want: []string{"a.npy", `"|O"`, "not read"}},
		"npy dates":   {files: files{"a.npy": npyFile("<M8[D]", "2, 2", make([]byte, 32))}, want: []string{"a.npy", `"<M8[D]"`, "not read"}},
		"npy cut":     {files: files{"a.npy": npyFile("<f4", "2, 2", make([]byte, 15))}, want: []string{"a.npy", "the file ends here"}},
		"npy NaN":     {files: files{"a.npy": npyFile("<f4", "2, 2", float32s(0, 1, 1, nan))}, want: []string{"a.npy", "row 1", `column "1"`, "NaN: the value is missing"}},
		"npy Inf":     {files: files{"x.npy": npyFile("<f4", "2, 2", float32s(0, 1, 1, float32(math.Inf(1)))), "y.npy": npyFile("|u1", "2,", []byte{0, 1})}, want: []string{"x.npy", "row 1", "element 1", "+Inf"}},
		"npy labels":  {files: files{"x.npy": npyFile("<f4", "2, 2", float32s(0, 1, 1, 1)), "y.npy": npyFile("|u1", "3,", []byte{0, 1, 1})}, want: []string{"y.npy", "3 labels, and 2 rows"}},
		"npy none":    {files: files{"a.npy": npyFile("<f4", "0, 2", nil)}, want: []string{"a.npy", "no rows"}},

		"parquet junk": {files: files{"a.parquet": []byte("PAR1 this is none PAR1")}, want: []string{"a.parquet", "Parquet"}},
		"parquet list": {files: files{"a.parquet": parquetBytes(t, []struct {
			Label int32
			X     []float32
		}{{1, []float32{1}}})}, want: []string{"a.parquet", `column "X"`, "lists or groups"}},
		"parquet NaN": {files: files{"a.parquet": parquetBytes(t, []struct {
			Label int32
			X     float64
		}{{1, 1}, {0, math.NaN()}})}, d: trivium.Data{Train: ":"}, want: []string{"a.parquet", "row 1", `column "X"`, "NaN"}},
		"parquet null": {files: files{"a.parquet": parquetBytes(t, []struct {
			Label int32
			X     *float64
		}{{1, new(float64)}, {0, nil}})}, d: trivium.Data{Train: ":"}, want: []string{"row 1", `column "X"`, "missing"}},
		"parquet text": {files: files{"a.parquet": parquetBytes(t, []struct {
			Label int32
			X     string
		}{{1, "1"}, {0, "red"}})}, d: trivium.Data{Train: ":"}, want: []string{"row 1", `column "X"`, "--categorical X"}},
		"parquet codecs": {files: files{"a.parquet": joined(t,
			parquetBytes(t, []struct{ Label, X int32 }{{1, 5}, {0, 6}}, parquet.Compression(&parquet.Uncompressed)),
			parquetBytes(t, []struct{ Label, X int32 }{{1, 5}, {0, 6}}, parquet.Compression(&parquet.Zstd)))}, d: trivium.Data{Train: ":"}, want: []string{"a.parquet", "UNCOMPRESSED in one row group and ZSTD in another", "another compression"}},
		"parquet LZ4":   {files: files{"a.parquet": parquetBytes(t, []struct{ Label, X int32 }{{1, 5}, {0, 6}}, parquet.Compression(&parquet.Lz4Raw))}, d: trivium.Data{Train: ":"}, want: []string{"a.parquet", "packed with LZ4", "another compression"}},
		"parquet empty": {files: files{"a.parquet": parquetBytes(t, []struct{ Label int32 }{})}, want: []string{"a.parquet", "no rows"}},

		"empty file":     {files: files{"a.csv": nil}, want: []string{"a.csv", "the file is empty"}},
		"empty gzip":     {files: files{"a.csv.gz": {}}, want: []string{"a.csv.gz", "the file is empty"}},
		"only blank":     {files: files{"a.libsvm": []byte("\n\n# nothing\n")}, want: []string{"a.libsvm", "no rows"}},
		"gzip cut":       {files: files{"raw:a.csv.gz": zipped[:len(zipped)-9]}, want: []string{"a.csv.gz", "offset", "corrupt or cut off"}},
		"gzip flipped":   {files: files{"raw:a.csv.gz": flip(zipped, len(zipped)-6)}, want: []string{"a.csv.gz", "corrupt"}},
		"gzip junk":      {files: files{"raw:a.csv.gz": append(append(bytes.Clone(zipped), 0, 0), "junk and more"...)}, want: []string{"a.csv.gz", "offset 24", "corrupt"}},
		"no gzip":        {files: files{"raw:a.csv.gz": []byte("label,a\n0,1\n")}, want: []string{"a.csv.gz", "offset 0", "not gzip", "1f 8b"}},
		"no format":      {files: files{"a.xyz": []byte("hello world\n")}, d: trivium.Data{Train: "a.xyz"}, want: []string{"no data file"}},
		"wrong format":   {files: text("a.csv", "label,a", "0,1"), d: trivium.Data{Format: "libsvm"}, want: []string{"no data file"}},
		"several":        {files: files{"a.csv": []byte("x"), "b.csv": []byte("x")}, want: []string{"2 files could be the data: a.csv, b.csv"}},
		"two for test":   {files: files{"test.csv": []byte("x"), "test.csv.gz": []byte("x")}, want: []string{"could both be for test"}},
		"nothing to fit": {files: files{"valid.csv": []byte("x"), "test.csv": []byte("x")}, want: []string{"valid.csv and test.csv are there, and no file to train on"}},
		"empty folder":   {files: files{}, want: []string{"no data file is in this folder"}},
		"binary as text": {files: files{"a.csv": append([]byte("label,a\n0,1\n"), bytes.Repeat([]byte{0}, 100)...)}, want: []string{"a.csv", "line 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, contents := range c.files {
				if raw, ok := strings.CutPrefix(name, "raw:"); ok {
					if err := os.WriteFile(filepath.Join(dir, raw), contents, 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if len(contents) == 0 {
					if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				write(t, dir, name, contents)
			}
			c.d.Source = dir
			for _, budget := range []int64{0, 1} {
				if budget == 1 && c.d.Missing == "drop" {
					continue // refused with another sentence: see TestDropNeedsMemory
				}
				s, err := Open(context.Background(), c.d, Options{Budget: budget})
				if err == nil {
					s.Close()
					t.Fatalf("budget %d: no error", budget)
				}
				var e *Error
				if !errors.As(err, &e) {
					t.Errorf("budget %d: %v is no *Error", budget, err)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("budget %d: %q does not say %q", budget, err, w)
					}
				}
			}
		})
	}
}

func flip(p []byte, at int) []byte {
	p = bytes.Clone(p)
	p[at] ^= 0x55
	return p
}

func TestBadSources(t *testing.T) {
	if _, err := Open(context.Background(), trivium.Data{Source: filepath.Join(t.TempDir(), "absent")}, Options{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("absent source: %v", err)
	}
	for source, want := range map[string]string{"ftp://host/a.csv": "those of http and https are read", "no/*.csv": "a pattern is not read: name one file"} {
		if _, err := Open(context.Background(), trivium.Data{Source: source}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	if _, err := Open(context.Background(), trivium.Data{Source: "digits", Scale: "standard", Label: "y"}, Options{}); err == nil ||
		!strings.Contains(err.Error(), "scale") || !strings.Contains(err.Error(), "label") {
		t.Errorf("settings that digits have no use for: %v", err)
	}
	if runtime.GOOS != "windows" {
		if _, err := Open(t.Context(), trivium.Data{Source: os.DevNull}, Options{}); err == nil || !strings.Contains(err.Error(), "write what a pipe gives to a file first") {
			t.Errorf("what is no regular file: %v", err)
		}
	}
	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		path := write(t, t.TempDir(), "a.csv", []byte("label,a\n0,1\n"))
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(context.Background(), trivium.Data{Source: path}, Options{}); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("unreadable file: %v", err)
		}
	}
}

func TestDropNeedsMemory(t *testing.T) {
	path := write(t, t.TempDir(), "a.csv", []byte("label,a\n0,1\n1,\n"))
	_, err := Open(context.Background(), trivium.Data{Source: path, Missing: "drop"}, Options{Budget: 1})
	if err == nil || !strings.Contains(err.Error(), "needs the table in memory") {
		t.Errorf("dropping rows of a streamed file: %v", err)
	}
}
