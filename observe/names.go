package observe

import "fmt"

// The catalogue of metrics. Readers know a metric by its name; the numbers travel only inside frames of one FrameVersion: a metric
// added at the end keeps the version, any other change raises it.

// A Counter is a cumulative count of a Set. Times are in nanoseconds.
type Counter uint8

const (
	Steps Counter = iota
	Samples
	Updates // of a worker: of the parameters that it trains, one a step; of a server: rounds of workers, by each of its lanes
	BytesOut
	BytesIn
	MessagesOut
	MessagesIn
	CPUUser   // nanoseconds
	CPUSystem // nanoseconds
	GCPauses  // nanoseconds
	Throttled // nanoseconds that a CPU limit held the process back
	DiskRead
	DiskWritten
	Dropped   // steps that the queue to the collector had no room for
	Anomalies // waits reported longer than what they are part of
	Checkpoints
	Restarts    // of the job, in the figures of who restarts it
	WallTime    // nanoseconds inside steps
	firstPhase  // nine counters of nanoseconds, by phase
	lastPhase   = firstPhase + NumPhases - 1
	firstOver   = lastPhase + 1 // nine counters of overlapped nanoseconds
	lastOver    = firstOver + NumPhases - 1
	CacheHits   = lastOver + 1 // reads of a worker, of tables that servers hold
	CacheMisses = lastOver + 2
	TornRounds  = lastOver + 3 // of a server
	Refused     = lastOver + 4 // messages
	NumCounters = int(Refused) + 1
)

// PhaseTime returns the counter of the nanoseconds spent in p.
func PhaseTime(p Phase) Counter { return firstPhase + Counter(p) }

// OverlapTime returns the counter of the nanoseconds of background work that overlapped as p.
func OverlapTime(p Phase) Counter { return firstOver + Counter(p) }

// A Gauge is a value of a Set that goes up and down.
type Gauge uint8

const (
	CurrentStep Gauge = iota
	CurrentEpoch
	EpochProgress // 0 to 1
	Loss          // of the last step, mean over its samples
	LearningRate
	GradientNorm // where the gradient is clipped by it, else absent
	ResidentBytes
	HeapBytes
	CPUUse // busy cores
	WorkerClock
	WorkerLead
	ParkedRequests // of a process that only serves
	CheckpointBytes
	CheckpointSeconds
	KeptOneIn // of the steps, one in so many is kept one by one
	NumGauges = int(KeptOneIn) + 1
)

// A Distribution is a histogram of a Set.
type Distribution uint8

const (
	StepTime         Distribution = iota // nanoseconds
	Staleness                            // clocks
	ServerApply                          // nanoseconds that a server's lane was at the cells of a round, or, under BSP, of those of all
	NumDistributions = int(ServerApply) + 1
)

// A Unit is what a metric is counted in.
type Unit string

const (
	Ones        Unit = ""
	Nanoseconds Unit = "ns"
	Seconds     Unit = "s"
	Bytes       Unit = "B"
	Ratio       Unit = "ratio"
)

// A Metric describes a counter, a gauge or a distribution.
type Metric struct {
	Name string // words joined by _; a phase, a direction or a kind follows a point
	Unit Unit
	Help string
}

var counterInfo = [...]Metric{
	Steps:       {"steps", Ones, "steps finished"},
	Samples:     {"samples", Ones, "samples consumed"},
	Updates:     {"updates", Ones, "updates of the parameters that a worker trains, or rounds that a server's lanes applied"},
	BytesOut:    {"wire_bytes.out", Bytes, "bytes sent"},
	BytesIn:     {"wire_bytes.in", Bytes, "bytes received"},
	MessagesOut: {"wire_messages.out", Ones, "messages sent"},
	MessagesIn:  {"wire_messages.in", Ones, "messages received"},
	CPUUser:     {"cpu_time.user", Nanoseconds, "processor time in user mode"},
	CPUSystem:   {"cpu_time.system", Nanoseconds, "processor time in system mode"},
	GCPauses:    {"gc_pause_time", Nanoseconds, "time the garbage collector stopped the process"},
	Throttled:   {"throttled_time", Nanoseconds, "time a processor limit held the process back"},
	DiskRead:    {"disk_bytes.in", Bytes, "bytes read from storage"},
	DiskWritten: {"disk_bytes.out", Bytes, "bytes written to storage"},
	Dropped:     {"steps_dropped", Ones, "steps not recorded one by one, since the collector was behind"},
	Anomalies:   {"anomalies", Ones, "waits reported longer than what they are part of"},
	Checkpoints: {"checkpoints", Ones, "checkpoints written"},
	Restarts:    {"restarts", Ones, "restarts of the job, after one of its processes was lost"},
	WallTime:    {"step_time", Nanoseconds, "wall time inside steps"},
	CacheHits:   {"cache_reads.hit", Ones, "reads of tables that the cache of the process answered"},
	CacheMisses: {"cache_reads.miss", Ones, "reads of tables that waited for a server"},
	TornRounds:  {"torn_rounds", Ones, "rounds of lost workers that a server had, and another had not"},
	Refused:     {"messages_refused", Ones, "messages of tables that could not be read, or made no sense"},
}

var gaugeInfo = [NumGauges]Metric{
	CurrentStep:       {"step", Ones, "the last finished step"},
	CurrentEpoch:      {"epoch", Ones, "the epoch under way, from 0"},
	EpochProgress:     {"epoch_progress", Ratio, "how much of the epoch is done"},
	Loss:              {"loss", Ones, "mean loss of the last step"},
	LearningRate:      {"learning_rate", Ones, "learning rate"},
	GradientNorm:      {"gradient_norm", Ones, "Euclidean norm of the mean gradient, where it is clipped by its norm"},
	ResidentBytes:     {"resident_memory", Bytes, "resident memory"},
	HeapBytes:         {"heap_memory", Bytes, "bytes in live and unswept heap objects"},
	CPUUse:            {"cpu_use", Ones, "processor cores kept busy"},
	WorkerClock:       {"worker_clock", Ones, "rounds the worker has finished"},
	WorkerLead:        {"worker_lead", Ones, "rounds ahead of the slowest worker, as far as it has heard"},
	ParkedRequests:    {"parked_requests", Ones, "reads that wait for the staleness bound"},
	CheckpointBytes:   {"checkpoint_size", Bytes, "size of the last checkpoint"},
	CheckpointSeconds: {"checkpoint_time", Seconds, "time the last checkpoint took"},
	KeptOneIn:         {"steps_kept_one_in", Ones, "one in so many steps is recorded one by one"},
}

var distributionInfo = [NumDistributions]Metric{
	StepTime:    {"step_duration", Nanoseconds, "wall time of a step"},
	Staleness:   {"staleness", Ones, "clocks a read was behind"},
	ServerApply: {"server_apply", Nanoseconds, "time a server took to apply an update"},
}

// Metric describes c.
func (c Counter) Metric() Metric {
	switch {
	case c >= firstPhase && c <= lastPhase:
		p := Phase(c - firstPhase)
		return Metric{"phase_time." + p.String(), Nanoseconds, fmt.Sprintf("time in phase %v", p)}
	case c >= firstOver && c <= lastOver:
		p := Phase(c - firstOver)
		return Metric{"overlapped_time." + p.String(), Nanoseconds, fmt.Sprintf("background work as %v beside the steps", p)}
	case int(c) < len(counterInfo):
		return counterInfo[c]
	}
	return Metric{Name: fmt.Sprintf("counter_%d", uint8(c)), Help: "unknown to this version"}
}

// Metric describes g.
func (g Gauge) Metric() Metric {
	if int(g) < NumGauges {
		return gaugeInfo[g]
	}
	return Metric{Name: fmt.Sprintf("gauge_%d", uint8(g)), Help: "unknown to this version"}
}

// Metric describes d.
func (d Distribution) Metric() Metric {
	if int(d) < NumDistributions {
		return distributionInfo[d]
	}
	return Metric{Name: fmt.Sprintf("distribution_%d", uint8(d)), Help: "unknown to this version"}
}

func (c Counter) String() string      { return c.Metric().Name }
func (g Gauge) String() string        { return g.Metric().Name }
func (d Distribution) String() string { return d.Metric().Name }
