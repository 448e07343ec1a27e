package exec

// kernels is every operation that this package can run, by the name of the graph's operation table or an internal one.
var kernels = map[string]kernelRow{
	"Add": binaryKernel, "Sub": binaryKernel, "Mul": binaryKernel, "Div": binaryKernel, "Max": binaryKernel,
	"ReLUGrad": binaryKernel, "TanhGrad": binaryKernel, "SigmoidGrad": binaryKernel,
	"Neg": unaryKernel, "Exp": unaryKernel, "Log": unaryKernel, "Sqrt": unaryKernel, "Square": unaryKernel, "Tanh": unaryKernel,
	"Sigmoid": unaryKernel, "ReLU": unaryKernel,
	opFused: {bind: byFloat(bindFused[float32], bindFused[float64]), alias: true},
	"Where": {bind: bySize(bindWhere[uint8], bindWhere[uint16], bindWhere[uint32], bindWhere[uint64])},
	"Less":  {bind: bindComparison(true)},
	"Equal": {bind: bindComparison(false)},
	"Cast":  {bind: bindCast},

	"MatMul":                  {bind: byFloat(bindMatMul[float32], bindMatMul[float64]), accepts: floats},
	"Dense":                   {bind: byFloat(bindMatMul[float32], bindMatMul[float64]), accepts: floats},
	"Transpose":               {bind: stridedBySize(transposeStrides)},
	"SparseMatMul":            {bind: byFloat(bindSparseMatMul[float32], bindSparseMatMul[float64]), accepts: floats},
	"SparseMatMulGradRows":    {bind: byFloat(bindSparseGradRows[float32], bindSparseGradRows[float64]), accepts: floats},
	"SparseMatMulGradWeights": {bind: byFloat(bindSparseGradWeights[float32], bindSparseGradWeights[float64]), accepts: floats},
	"SparseMatMulGradValues":  {bind: byFloat(bindSparseGradValues[float32], bindSparseGradValues[float64]), accepts: floats},

	"Sum":       {bind: byFloat(bindSum[float32], bindSum[float64]), accepts: floats},
	"Mean":      {bind: byFloat(bindSum[float32], bindSum[float64]), accepts: floats},
	"SumTo":     {bind: byFloat(bindSum[float32], bindSum[float64]), accepts: floats},
	"ReduceMax": {bind: byFloat(bindReduceMax[float32], bindReduceMax[float64]), accepts: floats},
	"ArgMax":    {bind: byFloat(bindArgMax[float32], bindArgMax[float64]), accepts: floats},

	"Const": {}, opFeed: {}, "Reshape": {}, "StopGradient": {}, // no work: values that lie where others do
	opCopy:        {bind: bindCopy},
	"Size":        {bind: bindSize},
	"BroadcastTo": {bind: stridedBySize(broadcastStrides)},
	"Slice":       {bind: stridedBySize(sliceStrides)},
	"SliceGrad":   {bind: bySize(bindSliceGrad[uint8], bindSliceGrad[uint16], bindSliceGrad[uint32], bindSliceGrad[uint64])},
	"Concat":      {bind: bindConcat},
	"OneHot":      {bind: oneHotByType},
	"Gather":      {bind: bindGather},
	"ScatterAdd":  {bind: byFloat(bindScatterAdd[float32], bindScatterAdd[float64]), accepts: floats, alias: true},

	"Softmax":                 {bind: byFloat(bindSoftmax[float32], bindSoftmax[float64]), accepts: floats, alias: true},
	"SoftmaxGrad":             {bind: byFloat(bindSoftmaxGrad[float32], bindSoftmaxGrad[float64]), accepts: floats},
	"SoftmaxCrossEntropy":     {bind: byFloat(bindXent[float32], bindXent[float64]), accepts: floats},
	"SoftmaxCrossEntropyGrad": {bind: byFloat(bindXentGrad[float32], bindXentGrad[float64]), accepts: floats},
	opXent:                    {bind: byFloat(bindXentBoth[float32], bindXentBoth[float64]), accepts: floats},
	"SigmoidCrossEntropy":     {bind: byFloat(bindSigmoidXent[float32], bindSigmoidXent[float64]), accepts: floats},
	"SigmoidCrossEntropyGrad": {bind: byFloat(bindSigmoidXentGrad[float32], bindSigmoidXentGrad[float64]), accepts: floats},
	"Conv2D":                  {bind: byFloat(bindConv[float32], bindConv[float64]), accepts: floats},
	"Conv2DGradInput":         {bind: byFloat(bindConvInput[float32], bindConvInput[float64]), accepts: floats},
	"Conv2DGradFilter":        {bind: byFloat(bindConvFilter[float32], bindConvFilter[float64]), accepts: floats},
	"MaxPool":                 {bind: byFloat(bindMaxPool[float32], bindMaxPool[float64]), accepts: floats},
	"MaxPoolGrad":             {bind: byFloat(bindMaxPoolGrad[float32], bindMaxPoolGrad[float64]), accepts: floats},
	"Dropout":                 {bind: byFloat(bindDropout[float32], bindDropout[float64]), accepts: floats},
	"LSTMCell":                {bind: byFloat(bindLSTM[float32], bindLSTM[float64]), accepts: floats},
	"LSTMCellGrad":            {bind: byFloat(bindLSTMGrad[float32], bindLSTMGrad[float64]), accepts: floats},

	"Scan": {bind: func(*bound) {}}, // see bindScan, which needs this table

	"Read": {bind: bindRead}, "Assign": {bind: bindWrite}, "AssignAdd": {bind: bindWrite}, "Apply": {bind: bindApply},
	"AccumApply": {bind: bindAccumApply}, "Send": {bind: bindSend},
	"Enqueue": {}, "Dequeue": {}, "AccumTake": {}, "Recv": {}, // continuations, see wait.go
}

var (
	binaryKernel = kernelRow{bind: byFloat(bindBinary[float32], bindBinary[float64]), accepts: floats, alias: true}
	unaryKernel  = kernelRow{bind: byFloat(bindUnary[float32], bindUnary[float64]), accepts: floats, alias: true}
)
