package collective

// KindVote is the kind of the frames by which ranks vote.
const KindVote = kindVote
