// SPDX-License-Identifier: Apache-2.0
//
// Tensor: one of an interpreter's tensors, whose memory others see through the buffer protocol.
#include <cstdlib>
#include <cstring>
#include <string>

#include "python/extension/interpreter.h"

namespace atollpython {
namespace {

PyTypeObject* type_of_owners = nullptr;

struct TensorObject {
  PyObject base;
  PyObject* owner;            // the interpreter
  const AtollTensor* tensor;  // keeps its address
};

const TensorObject& TensorOf(PyObject* self) { return *reinterpret_cast<TensorObject*>(self); }

PyObject* NewTensor(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* const names[] = {"interpreter", "index", nullptr};
  PyObject* owner = nullptr;
  int index = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "O!i:Tensor", const_cast<char**>(names),
                                  type_of_owners, &owner, &index) == 0) {
    return nullptr;
  }
  const AtollTensor* tensor = nullptr;
  {
    const Turn turn(owner);
    tensor = AtollInterpreterGetTensor(Handle(owner), index);
    if (tensor == nullptr) return Raise(ATOLL_INVALID_ARGUMENT);
  }
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  auto* const object = reinterpret_cast<TensorObject*>(self);
  Py_INCREF(owner);
  object->owner = owner;
  object->tensor = tensor;
  return self;
}

// Whoever makes a circle of it has something else in it that lets go.
int TraverseTensor(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(TensorOf(self).owner);
  return 0;
}

void DeallocTensor(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* const type = Py_TYPE(self);
  Py_DECREF(TensorOf(self).owner);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

// As the struct module writes it, and its size; nullptr for types whose elements Python cannot see.
const char* FormatOf(AtollType type) {
  switch (type) {
    case ATOLL_FLOAT32:
      return "f";
    case ATOLL_INT32:
    case ATOLL_RESOURCE:
      return "i";
    case ATOLL_UINT8:
      return "B";
    case ATOLL_INT64:
      return "q";
    case ATOLL_BOOL:
      return "?";
    case ATOLL_INT16:
      return "h";
    case ATOLL_INT8:
      return "b";
    case ATOLL_UINT32:
      return "I";
    case ATOLL_FLOAT16:
      return "e";
    default:
      return nullptr;
  }
}

Py_ssize_t ItemSizeOf(char format) {
  switch (format) {
    case 'q':
      return 8;
    case 'f':
    case 'i':
    case 'I':
      return 4;
    case 'h':
    case 'e':
      return 2;
    default:
      return 1;
  }
}

// The tensor's bytes in the interpreter's own memory; nullptr with InvalidArgumentError if it has
// none. In a turn.
void* OwnBytes(const TensorObject& self) {
  static char nothing = 0;
  const void* const data = AtollTensorConstData(self.tensor);
  if (data != nullptr) return const_cast<void*>(data);
  if (*AtollLastError() != '\0') return Raise(ATOLL_INVALID_ARGUMENT);  // it is not ready
  if (AtollTensorByteSize(self.tensor) == 0) return &nothing;
  const std::string message = "tensor '" + std::string(AtollTensorName(self.tensor)) +
                              "' has no memory: it exists inside a partition only";
  return RaiseInvalidArgument(message.c_str());
}

int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  const TensorObject& object = TensorOf(self);
  InterpreterState* const state = StateOf(object.owner);
  view->obj = nullptr;
  const Turn turn(object.owner);
  const char* const format = FormatOf(AtollTensorType(object.tensor));
  const int readonly = AtollTensorIsConstant(object.tensor);
  const char* refusal = nullptr;
  if (format == nullptr) {
    refusal = "elements of this type cannot be seen from Python";
  } else if (readonly != 0 && (flags & PyBUF_WRITABLE) != 0) {
    refusal = "constants of a model cannot be written";
  } else if (state->BoundMemory(object.tensor) != nullptr) {
    refusal = "the tensor lies in a buffer of yours; look there, or bind it to None first";
  }
  if (refusal != nullptr) {
    PyErr_SetString(PyExc_BufferError, refusal);
    return -1;
  }
  void* const data = OwnBytes(object);
  if (data == nullptr) return -1;
  const int32_t rank = AtollTensorNumDims(object.tensor);
  // Sizes, then steps; as long as the view.
  auto* const shape = static_cast<Py_ssize_t*>(
      std::malloc((2 * static_cast<size_t>(rank) + 1) * sizeof(Py_ssize_t)));
  if (shape == nullptr) {
    PyErr_NoMemory();
    return -1;
  }
  Py_ssize_t step = ItemSizeOf(*format);
  view->itemsize = step;
  for (int32_t i = rank - 1; i >= 0; --i) {
    shape[i] = AtollTensorDim(object.tensor, i);
    shape[rank + i] = step;
    step *= shape[i];
  }
  Py_INCREF(self);
  view->obj = self;
  view->buf = data;
  view->len = static_cast<Py_ssize_t>(AtollTensorByteSize(object.tensor));
  view->readonly = readonly;
  // Who does not ask for sizes sees one row of bytes, as of a memoryview.
  view->ndim = (flags & PyBUF_ND) != 0 ? rank : 1;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
  view->shape = (flags & PyBUF_ND) != 0 ? shape : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? shape + rank : nullptr;
  view->suboffsets = nullptr;
  view->internal = shape;
  ++state->views;
  return 0;
}

void ReleaseBuffer(PyObject* self, Py_buffer* view) {
  std::free(view->internal);
  --StateOf(TensorOf(self).owner)->views;
}

// One copy between the tensor and another object of as many bytes.
PyObject* CopyFrom(PyObject* self, PyObject* source) {
  const TensorObject& object = TensorOf(self);
  Memory memory;
  if (!memory.Open(source, PyBUF_SIMPLE)) return nullptr;
  const Turn turn(object.owner);
  if (AtollTensorIsConstant(object.tensor) != 0) {
    return RaiseInvalidArgument("constants of a model cannot be written");
  }
  if (StateOf(object.owner)->BoundMemory(object.tensor) != nullptr) {
    return RaiseInvalidArgument("the tensor lies in a buffer of yours; write there");
  }
  void* const data = OwnBytes(object);
  if (data == nullptr) return nullptr;
  if (memory.size() != AtollTensorByteSize(object.tensor)) {
    return RaiseInvalidArgument("the buffer has another size than the tensor");
  }
  if (memory.size() > 0) std::memmove(data, memory.data(), memory.size());
  return None();
}

PyObject* CopyTo(PyObject* self, PyObject* target) {
  const TensorObject& object = TensorOf(self);
  Memory memory;
  if (!memory.Open(target, PyBUF_WRITABLE)) return nullptr;
  const Turn turn(object.owner);
  const Memory* const bound = StateOf(object.owner)->BoundMemory(object.tensor);
  const void* const data = bound != nullptr ? bound->data() : OwnBytes(object);
  if (data == nullptr) return nullptr;
  if (memory.size() != AtollTensorByteSize(object.tensor)) {
    return RaiseInvalidArgument("the buffer has another size than the tensor");
  }
  if (memory.size() > 0) std::memmove(memory.data(), data, memory.size());
  return None();
}

PyObject* Name(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  return MakeText(AtollTensorName(TensorOf(self).tensor));
}

PyObject* Index(PyObject* self, void*) {
  return PyLong_FromLong(AtollTensorIndex(TensorOf(self).tensor));
}

PyObject* Type(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  return PyUnicode_FromString(AtollTypeName(AtollTensorType(TensorOf(self).tensor)));
}

// A tuple of what `size(tensor, dimension)` says.
PyObject* Sizes(PyObject* self, int32_t (*size)(const AtollTensor* tensor, int32_t dim)) {
  const AtollTensor* const tensor = TensorOf(self).tensor;
  const Turn turn(TensorOf(self).owner);
  const Ref list(MakeList(AtollTensorNumDims(tensor), [&](Py_ssize_t i) {
    return PyLong_FromLong(size(tensor, static_cast<int32_t>(i)));
  }));
  return list ? PyList_AsTuple(list.get()) : nullptr;
}
PyObject* Shape(PyObject* self, void*) { return Sizes(self, AtollTensorDim); }
PyObject* ShapeSignature(PyObject* self, void*) { return Sizes(self, AtollTensorDimSignature); }

PyObject* ByteSize(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  return PyLong_FromSize_t(AtollTensorByteSize(TensorOf(self).tensor));
}

PyObject* IsConstant(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  return PyBool_FromLong(AtollTensorIsConstant(TensorOf(self).tensor));
}

PyObject* IsVariable(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  return PyBool_FromLong(AtollTensorIsVariable(TensorOf(self).tensor));
}

PyObject* HasMemory(PyObject* self, void*) {
  const TensorObject& object = TensorOf(self);
  const Turn turn(object.owner);
  return PyBool_FromLong(AtollTensorByteSize(object.tensor) == 0 ||
                         AtollTensorConstData(object.tensor) != nullptr);
}

PyObject* Quantization(PyObject* self, void*) {
  const Turn turn(TensorOf(self).owner);
  const AtollQuantization q = AtollTensorQuantization(TensorOf(self).tensor);
  return Py_BuildValue("(di)", static_cast<double>(q.scale), q.zero_point);
}

PyObject* ChannelQuantization(PyObject* self, void*) {
  AtollChannelQuantization info = {};
  const Turn turn(TensorOf(self).owner);
  const AtollStatus status = AtollTensorGetChannelQuantization(TensorOf(self).tensor, &info);
  if (status != ATOLL_OK) return Raise(status);
  Ref scales(MakeList(info.count, [&](Py_ssize_t i) {
    return PyFloat_FromDouble(static_cast<double>(info.scales[i]));
  }));
  Ref zero_points(IntList(info.zero_points, info.count));
  if (!scales || !zero_points) return nullptr;
  return Py_BuildValue("(NNi)", scales.release(), zero_points.release(), info.dimension);
}

PyMethodDef tensor_methods[] = {{"copy_from", CopyFrom, METH_O, "copy_from(buffer)"},
                                {"copy_to", CopyTo, METH_O, "copy_to(buffer)"},
                                {nullptr, nullptr, 0, nullptr}};
PyGetSetDef tensor_properties[] = {
    {"name", Name, nullptr, nullptr, nullptr},
    {"index", Index, nullptr, "In the model's file.", nullptr},
    {"type", Type, nullptr, "\"int8\"", nullptr},
    {"shape", Shape, nullptr, nullptr, nullptr},
    {"shape_signature", ShapeSignature, nullptr, "The shape in the file; -1: any size.", nullptr},
    {"nbytes", ByteSize, nullptr, nullptr, nullptr},
    {"is_constant", IsConstant, nullptr, "Whether it is stored in the model's file.", nullptr},
    {"is_variable", IsVariable, nullptr, "Whether it remembers something.", nullptr},
    {"has_memory", HasMemory, nullptr, "False inside partitions.", nullptr},
    {"quantization", Quantization, nullptr, "(scale, zero point); (0.0, 0): see the channels.",
     nullptr},
    {"channel_quantization", ChannelQuantization, nullptr, "(scales, zero points, dimension)",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot tensor_slots[] = {
    {Py_tp_doc, const_cast<char*>("A tensor of an interpreter: Tensor(interpreter, index).")},
    {Py_tp_new, reinterpret_cast<void*>(NewTensor)},
    {Py_tp_dealloc, reinterpret_cast<void*>(DeallocTensor)},
    {Py_tp_traverse, reinterpret_cast<void*>(TraverseTensor)},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_properties},
    {Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(ReleaseBuffer)},
    {0, nullptr}};
PyType_Spec tensor_spec = {"atoll._atoll.Tensor", sizeof(TensorObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                           tensor_slots};

}  // namespace

bool AddTensor(PyObject* module, PyTypeObject* interpreter_type) {
  type_of_owners = interpreter_type;
  return AddType(module, "Tensor", &tensor_spec) != nullptr;
}

}  // namespace atollpython
