// SPDX-License-Identifier: Apache-2.0
//
// Model: an AtollModel. Immutable, so threads may share it.
#include <vector>

#include "python/extension/python.h"

namespace atollpython {
namespace {

PyTypeObject* model_type = nullptr;

struct ModelObject {
  PyObject base;
  AtollModel* model;
};

AtollModel* Handle(PyObject* self) { return reinterpret_cast<ModelObject*>(self)->model; }

PyObject* New(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* const names[] = {"path", "content", "copy_file", nullptr};
  PyObject* path = Py_None;
  PyObject* content = Py_None;
  int copy_file = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "|OOp:Model", const_cast<char**>(names), &path,
                                  &content, &copy_file) == 0) {
    return nullptr;
  }
  if ((path == Py_None) == (content == Py_None)) {
    return RaiseInvalidArgument("a model is made from either a path or its content");
  }
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  options.copy_file = static_cast<size_t>(copy_file);
  AtollModel* model = nullptr;
  AtollStatus status = ATOLL_OK;
  if (path != Py_None) {
    PyObject* encoded = nullptr;
    if (PyUnicode_FSConverter(path, &encoded) == 0) return nullptr;
    const Ref name(encoded);
    const char* const text = PyBytes_AsString(name.get());
    status =
        WithoutGil([&] { return AtollModelCreateFromFileWithOptions(text, &options, &model); });
  } else {
    Memory memory;
    if (!memory.Open(content, PyBUF_SIMPLE)) return nullptr;
    const void* const data = memory.data() == nullptr ? "" : memory.data();
    status = WithoutGil([&] {
      return AtollModelCreateFromBufferWithOptions(data, memory.size(), &options, &model);
    });
    // Before the memory is given back, which may run somebody's code.
    if (status != ATOLL_OK) return Raise(status);
  }
  if (status != ATOLL_OK) return Raise(status);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) {
    AtollModelDelete(model);
    return nullptr;
  }
  reinterpret_cast<ModelObject*>(self)->model = model;
  return self;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  AtollModelDelete(Handle(self));
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* HasOperator(PyObject* self, PyObject* name) {
  const Ref encoded(PyUnicode_AsUTF8String(name));
  if (!encoded) return nullptr;
  return PyBool_FromLong(AtollModelHasOperator(Handle(self), PyBytes_AsString(encoded.get())));
}

PyObject* TensorNames(const AtollSignatureTensor* tensors, int32_t count) {
  Dict names;
  for (int32_t i = 0; i < count; ++i) names.Int(tensors[i].name, tensors[i].tensor);
  return names.release();
}

PyObject* TensorCount(PyObject* self, void*) {
  return PyLong_FromLong(AtollModelGetTensorCount(Handle(self)));
}

PyObject* InputIndices(PyObject* self, void*) {
  return MakeList(AtollModelGetInputTensorCount(Handle(self)), [self](Py_ssize_t i) {
    const auto position = static_cast<int32_t>(i);
    return PyLong_FromLong(AtollTensorIndex(AtollModelGetInputTensor(Handle(self), position)));
  });
}

PyObject* OutputIndices(PyObject* self, void*) {
  return MakeList(AtollModelGetOutputTensorCount(Handle(self)), [self](Py_ssize_t i) {
    const auto position = static_cast<int32_t>(i);
    return PyLong_FromLong(AtollTensorIndex(AtollModelGetOutputTensor(Handle(self), position)));
  });
}

// A tuple of what `size(tensor, dimension)` says.
PyObject* Sizes(const AtollTensor* tensor, int32_t (*size)(const AtollTensor* tensor, int32_t)) {
  const Ref list(MakeList(AtollTensorNumDims(tensor), [&](Py_ssize_t i) {
    return PyLong_FromLong(size(tensor, static_cast<int32_t>(i)));
  }));
  return list ? PyList_AsTuple(list.get()) : nullptr;
}

PyObject* DescribeTensor(PyObject* self, PyObject* number) {
  const long index = PyLong_AsLong(number);
  if (index == -1 && PyErr_Occurred() != nullptr) return RaiseUnparsed();
  const AtollTensor* const tensor =
      index == static_cast<int32_t>(index)
          ? AtollModelGetTensor(Handle(self), static_cast<int32_t>(index))
          : nullptr;
  if (tensor == nullptr) return RaiseInvalidArgument("there is no tensor of this index");
  const AtollQuantization whole = AtollTensorQuantization(tensor);
  AtollChannelQuantization channels = {};
  const AtollStatus status = AtollTensorGetChannelQuantization(tensor, &channels);
  if (status != ATOLL_OK) return Raise(status);
  Ref scales(MakeList(channels.count, [&](Py_ssize_t i) {
    return PyFloat_FromDouble(static_cast<double>(channels.scales[i]));
  }));
  Ref zero_points(IntList(channels.zero_points, channels.count));
  if (!scales || !zero_points) return nullptr;
  return Dict()
      .Text("name", AtollTensorName(tensor))
      .Text("type", AtollTypeName(AtollTensorType(tensor)))
      .Add("shape", Sizes(tensor, AtollTensorDim))
      .Add("shape_signature", Sizes(tensor, AtollTensorDimSignature))
      .Add("quantization",
           Py_BuildValue("(di)", static_cast<double>(whole.scale), whole.zero_point))
      .Add("channel_quantization",
           Py_BuildValue("(NNi)", scales.release(), zero_points.release(), channels.dimension))
      .release();
}

PyObject* Signatures(PyObject* self, void*) {
  return MakeList(AtollModelGetSignatureCount(Handle(self)), [self](Py_ssize_t i) -> PyObject* {
    AtollSignatureInfo info;
    const AtollStatus status = AtollModelGetSignature(Handle(self), static_cast<int32_t>(i), &info);
    if (status != ATOLL_OK) return Raise(status);
    return Dict()
        .Text("key", info.key)
        .Int("subgraph", info.subgraph)
        .Add("inputs", TensorNames(info.inputs, info.input_count))
        .Add("outputs", TensorNames(info.outputs, info.output_count))
        .release();
  });
}

PyObject* Metadata(PyObject* self, void*) {
  Dict entries;
  for (int32_t i = 0; i < AtollModelGetMetadataCount(Handle(self)); ++i) {
    const char* name = nullptr;
    const void* data = nullptr;
    size_t size = 0;
    const AtollStatus status = AtollModelGetMetadata(Handle(self), i, &name, &data, &size);
    if (status != ATOLL_OK) return Raise(status);
    entries.Add(name, PyBytes_FromStringAndSize(static_cast<const char*>(data),
                                                static_cast<Py_ssize_t>(size)));
  }
  return entries.release();
}

PyObject* EstimateCoral(PyObject* self, PyObject* host) {
  const Ref encoded(PyUnicode_AsUTF8String(host));
  if (!encoded) return nullptr;
  AtollCoralEstimate e = {};
  const AtollStatus status = AtollEstimateCoral(Handle(self), PyBytes_AsString(encoded.get()), &e);
  if (status != ATOLL_OK) return Raise(status);
  return Dict()
      .Float("seconds", e.seconds)
      .Float("host_seconds", e.host_seconds)
      .Float("link_out_seconds", e.link_out_seconds)
      .Float("dense_seconds", e.dense_seconds)
      .Float("vector_seconds", e.vector_seconds)
      .Float("layer_seconds", e.layer_seconds)
      .Float("parameter_seconds", e.parameter_seconds)
      .Float("link_in_seconds", e.link_in_seconds)
      .Float("upload_seconds", e.upload_seconds)
      .Int("cached_parameter_bytes", e.cached_parameter_bytes)
      .Int("streamed_parameter_bytes", e.streamed_parameter_bytes)
      .Int("device_node_count", e.device_node_count)
      .Int("host_node_count", e.host_node_count)
      .release();
}

PyMethodDef methods[] = {{"has_operator", HasOperator, METH_O, "has_operator(name) -> bool"},
                         {"describe_tensor", DescribeTensor, METH_O,
                          "describe_tensor(index) -> dict\n\nAlso of a model that cannot run."},
                         {"estimate_coral", EstimateCoral, METH_O, "estimate_coral(host) -> dict"},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {
    {"signatures", Signatures, nullptr, "A list of dicts: key, subgraph, inputs, outputs.",
     nullptr},
    {"input_indices", InputIndices, nullptr, "Tensor indices in the file.", nullptr},
    {"output_indices", OutputIndices, nullptr, "Tensor indices in the file.", nullptr},
    {"tensor_count", TensorCount, nullptr, "Tensors in the file.", nullptr},
    {"metadata", Metadata, nullptr, "A dict of bytes by name.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A model: Model(path=None, content=None, copy_file=False).")},
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr}};
PyType_Spec spec = {"atoll._atoll.Model", sizeof(ModelObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool AddModel(PyObject* module) {
  model_type = AddType(module, "Model", &spec);
  return model_type != nullptr;
}

bool ModelOf(PyObject* object, AtollModel** model) {
  *model = nullptr;
  if (object == Py_None) return true;
  if (PyObject_TypeCheck(object, model_type) == 0) {
    PyErr_SetString(PyExc_TypeError, "this is to be an atoll.Model");
    return false;
  }
  *model = Handle(object);
  return true;
}

}  // namespace atollpython
