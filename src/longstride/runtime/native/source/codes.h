/* Operators by number: C and Python read the same list (operators.c, codes.py). ONNX operators by their ONNX names. */
#define OPERATORS(X) \
    X(Abs) X(Add) X(And) X(ArgMax) X(Cast) X(Concat) X(Div) X(Equal) X(Expand) X(Gather) X(GatherElements) X(GatherND) \
    X(Gelu) X(Greater) X(GreaterOrEqual) X(Identity) X(Less) X(LessOrEqual) X(LogSoftmax) X(MatMul) X(Max) X(Min) \
    X(Mul) X(Not) X(Or) X(Pad) X(Range) X(ReduceMax) X(ReduceSum) X(Relu) X(Reshape) X(ScatterElements) X(Shape) \
    X(Sigmoid) X(Slice) X(Softmax) X(Split) X(Squeeze) X(Sub) X(TopK) X(Transpose) X(Unsqueeze) X(Where) \
    X(Linear) X(Norm) X(Attend) X(Write) X(Assign) X(Append) X(Accumulate) X(Portion) X(Join) X(Best) X(Chain) X(Largest) X(LogShares)
