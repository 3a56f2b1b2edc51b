// SPDX-License-Identifier: Apache-2.0
//
// Interpreter: an AtollInterpreter for any threads, which take turns.
#include "python/extension/interpreter.h"

#include <string>
#include <utility>
#include <vector>

namespace atollpython {
namespace {

PyObject* NoneOr(AtollStatus status) { return status == ATOLL_OK ? None() : Raise(status); }

PyObject* NewInterpreter(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* const names[] = {"model",         "delegate", "num_threads",      "priority",
                               "residency_set", "fallback", "keep_all_tensors", nullptr};
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  PyObject* model_object = nullptr;
  PyObject* delegate_object = Py_None;
  PyObject* fallback_object = Py_None;
  int keep_all_tensors = 0;
  if (PyArg_ParseTupleAndKeywords(args, kwargs, "O|OiiIOp:Interpreter", const_cast<char**>(names),
                                  &model_object, &delegate_object, &options.num_threads,
                                  &options.priority, &options.residency_set, &fallback_object,
                                  &keep_all_tensors) == 0) {
    return RaiseUnparsed();
  }
  AtollModel* model = nullptr;
  AtollModel* fallback = nullptr;
  if (!ModelOf(model_object, &model) || !DelegateOf(delegate_object, &options.delegate) ||
      !ModelOf(fallback_object, &fallback)) {
    return nullptr;
  }
  options.fallback = fallback;
  options.keep_all_tensors = static_cast<size_t>(keep_all_tensors);
  AtollInterpreter* interpreter = nullptr;
  const AtollStatus status =
      WithoutGil([&] { return AtollInterpreterCreate(model, &options, &interpreter); });
  if (status != ATOLL_OK) return Raise(status);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) {
    AtollInterpreterDelete(interpreter);
    return nullptr;
  }
  auto* const state = new InterpreterState;
  state->interpreter = interpreter;
  reinterpret_cast<InterpreterObject*>(self)->state = state;
  return self;
}

// The collector sees whose memory is bound, so that what refers to its interpreter is collected.
int TraverseInterpreter(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const InterpreterState* const state = StateOf(self);
  if (state == nullptr) return 0;  // not made yet
  for (const InterpreterState::Bound& entry : state->bound) Py_VISIT(entry.memory.object());
  return 0;
}

// Nobody else has the interpreter; finalizers may yet call it.
int ClearInterpreter(PyObject* self) {
  InterpreterState* const state = StateOf(self);
  AtollInterpreter* const interpreter = state->interpreter;
  for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter); ++i) {
    AtollInterpreterSetInputBuffer(interpreter, i, nullptr, 0);
  }
  for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
    AtollInterpreterSetOutputBuffer(interpreter, i, nullptr, 0);
  }
  std::vector<InterpreterState::Bound> released;
  released.swap(state->bound);
  return 0;
}

void DeallocInterpreter(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* const type = Py_TYPE(self);
  InterpreterState* const state = StateOf(self);
  if (MayDelete(state->owner)) {
    WithoutGil([state] {
      AtollInterpreterDelete(state->interpreter);
      return 0;
    });
  }
  delete state;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

AtollStatus InvokeWithoutGil(InterpreterState* state) {
  state->invoking = true;
  const AtollStatus status =
      WithoutGil([state] { return AtollInterpreterInvoke(state->interpreter); });
  state->invoking = false;
  return status;
}

PyObject* Invoke(PyObject* self, PyObject*) {
  const Turn turn(self);
  return NoneOr(InvokeWithoutGil(StateOf(self)));
}

// Takes no turn: it is for an invocation in progress. The GIL keeps that from ending meanwhile.
PyObject* Cancel(PyObject* self, PyObject*) {
  if (!StateOf(self)->invoking) return None();
  return NoneOr(AtollInterpreterCancel(Handle(self)));
}

using Sizes32 = std::vector<int32_t>;

// False with an exception if `sequence` is none of sizes.
bool ReadSizes(PyObject* sequence, Sizes32* dims) {
  constexpr Py_ssize_t kMost = 64;  // far more than any tensor has; a sequence may be endless
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  if (count > kMost) {
    RaiseInvalidArgument("a shape has at most 64 sizes");
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item(PySequence_GetItem(sequence, i));
    const Ref number(item ? PyNumber_Index(item.get()) : nullptr);
    const long size = number ? PyLong_AsLong(number.get()) : -1;
    if (size == -1 && PyErr_Occurred() != nullptr) return false;
    if (size < 1 || size > INT32_MAX) {
      RaiseInvalidArgument("sizes are numbers from 1");
      return false;
    }
    dims->push_back(static_cast<int32_t>(size));
  }
  return true;
}

Sizes32 SizesOf(const AtollTensor* tensor) {
  Sizes32 dims;
  for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
    dims.push_back(AtollTensorDim(tensor, i));
  }
  return dims;
}

struct NewShape {
  int32_t index;
  Sizes32 dims;
};

AtollStatus ResizeAndAllocate(AtollInterpreter* interpreter, const std::vector<NewShape>& shapes) {
  for (const NewShape& shape : shapes) {
    const AtollStatus status = AtollInterpreterResizeInput(
        interpreter, shape.index, shape.dims.data(), static_cast<int32_t>(shape.dims.size()));
    if (status != ATOLL_OK) return status;
  }
  return AtollInterpreterAllocateTensors(interpreter);
}

// All or nothing: if the shapes do not fit, the interpreter is as it was, but for its buffers.
PyObject* Resize(PyObject* self, PyObject* shapes) {
  const Py_ssize_t count = PySequence_Size(shapes);
  if (count < 0) return nullptr;
  std::vector<NewShape> wanted;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref item(PySequence_GetItem(shapes, i));
    const Ref pair(item ? PySequence_Tuple(item.get()) : nullptr);
    int index = 0;
    PyObject* sizes = nullptr;
    wanted.emplace_back();
    if (!pair || PyArg_ParseTuple(pair.get(), "iO:resize", &index, &sizes) == 0 ||
        !ReadSizes(sizes, &wanted.back().dims)) {
      return nullptr;
    }
    wanted.back().index = index;
  }
  InterpreterState* const state = StateOf(self);
  std::vector<InterpreterState::Bound> released;  // after the turn, as it may run others' code
  const Turn turn(self);
  if (state->views > 0) {
    PyErr_Format(PyExc_BufferError,
                 "%zd views of the interpreter's tensors are alive; their memory cannot move",
                 state->views);
    return nullptr;
  }
  std::vector<NewShape> before;
  for (const NewShape& shape : wanted) {
    const AtollTensor* const tensor =
        AtollInterpreterGetInputTensor(state->interpreter, shape.index);
    if (tensor == nullptr) return Raise(ATOLL_INVALID_ARGUMENT);
    before.push_back({shape.index, SizesOf(tensor)});
  }
  // Nobody can begin to look meanwhile: that takes a turn, too.
  const AtollStatus status =
      WithoutGil([&] { return ResizeAndAllocate(state->interpreter, wanted); });
  released.swap(state->bound);
  if (status == ATOLL_OK) return None();
  Raise(status);
  WithoutGil([&] { return ResizeAndAllocate(state->interpreter, before); });
  return nullptr;
}

PyObject* ResetVariables(PyObject* self, PyObject*) {
  const Turn turn(self);
  return NoneOr(AtollInterpreterResetVariableTensors(Handle(self)));
}

enum class End { kInput, kOutput };

// Binds an input or output to the memory of an object, or with None to the interpreter's.
PyObject* SetBuffer(PyObject* self, PyObject* args, End end) {
  int index = 0;
  PyObject* object = nullptr;
  if (PyArg_ParseTuple(args, "iO", &index, &object) == 0) return nullptr;
  Memory memory;  // that of before at the end, released after the turn
  if (object != Py_None &&
      !memory.Open(object, end == End::kOutput ? PyBUF_WRITABLE : PyBUF_SIMPLE)) {
    return nullptr;
  }
  InterpreterState* const state = StateOf(self);
  const Turn turn(self);
  const AtollTensor* const tensor =
      end == End::kInput ? AtollInterpreterGetInputTensor(state->interpreter, index)
                         : AtollInterpreterGetOutputTensor(state->interpreter, index);
  AtollBuffer* buffer = nullptr;
  if (tensor == nullptr) return Raise(ATOLL_INVALID_ARGUMENT);
  if (object != Py_None) {
    if (memory.size() != AtollTensorByteSize(tensor)) {
      const std::string message = "tensor '" + std::string(AtollTensorName(tensor)) + "' has " +
                                  std::to_string(AtollTensorByteSize(tensor)) +
                                  " bytes; the buffer has " + std::to_string(memory.size());
      return RaiseInvalidArgument(message.c_str());
    }
    AtollBufferOptions options = ATOLL_BUFFER_OPTIONS_INIT;
    options.kind = ATOLL_BUFFER_CALLER;
    options.data = memory.data();
    options.size = memory.size();
    const AtollStatus status = AtollBufferCreate(&options, &buffer);
    if (status != ATOLL_OK) return Raise(status);
  }
  const AtollStatus status =
      end == End::kInput ? AtollInterpreterSetInputBuffer(state->interpreter, index, buffer, 0)
                         : AtollInterpreterSetOutputBuffer(state->interpreter, index, buffer, 0);
  AtollBufferDelete(buffer);
  if (status != ATOLL_OK) return Raise(status);
  for (size_t i = 0; i < state->bound.size(); ++i) {
    InterpreterState::Bound& entry = state->bound[i];
    if (entry.tensor != tensor) continue;
    std::swap(entry.memory, memory);
    if (object == Py_None) {
      std::swap(entry, state->bound.back());
      state->bound.pop_back();
    }
    return None();
  }
  if (object != Py_None) state->bound.push_back({tensor, std::move(memory)});
  return None();
}

PyObject* SetInputBuffer(PyObject* self, PyObject* args) {
  return SetBuffer(self, args, End::kInput);
}
PyObject* SetOutputBuffer(PyObject* self, PyObject* args) {
  return SetBuffer(self, args, End::kOutput);
}

// What an event says, copied while it is valid.
struct Event {
  AtollTraceKind kind;
  std::string name;
  int32_t partition;
  int32_t node;
  AtollHostTime host;
  AtollDeviceTime device;
};

PyObject* InvokeTraced(PyObject* self, PyObject*) {
  static constexpr const char* kKinds[] = {"node", "worker", "submit", "wait", "device"};
  InterpreterState* const state = StateOf(self);
  std::vector<Event> events;
  const Turn turn(self);
  AtollInterpreterSetTrace(
      state->interpreter,
      [](const AtollTraceEvent* event, void* user_data) {
        static_cast<std::vector<Event>*>(user_data)->push_back(
            {event->kind, event->name, event->partition, event->node, event->host, event->device});
      },
      &events);
  const AtollStatus status = InvokeWithoutGil(state);
  AtollInterpreterSetTrace(state->interpreter, nullptr, nullptr);
  if (status != ATOLL_OK) return Raise(status);
  return MakeList(static_cast<Py_ssize_t>(events.size()), [&](Py_ssize_t i) {
    const Event& event = events[static_cast<size_t>(i)];
    Dict dict;
    dict.Text("kind", kKinds[event.kind])
        .Text("name", event.name.c_str())
        .Int("partition", event.partition)
        .Int("node", event.node);
    if (event.kind != ATOLL_TRACE_DEVICE) {
      dict.Int("thread", event.host.thread)
          .Int("start_ns", event.host.start_ns)
          .Int("duration_ns", event.host.duration_ns);
    } else {
      dict.Text("unit", AtollDeviceUnitName(event.device.unit))
          .Int("instruction", event.device.instruction)
          .Int("issue_cycle", event.device.issue_cycle)
          .Int("start_cycle", event.device.start_cycle)
          .Int("end_cycle", event.device.end_cycle)
          .Int("bytes", event.device.bytes)
          .Int("macs", event.device.macs);
    }
    return dict.release();
  });
}

PyObject* Inputs(PyObject* self, void*) {
  const Turn turn(self);
  return MakeList(AtollInterpreterGetInputTensorCount(Handle(self)), [self](Py_ssize_t i) {
    return PyLong_FromLong(
        AtollTensorIndex(AtollInterpreterGetInputTensor(Handle(self), static_cast<int32_t>(i))));
  });
}

PyObject* Outputs(PyObject* self, void*) {
  const Turn turn(self);
  return MakeList(AtollInterpreterGetOutputTensorCount(Handle(self)), [self](Py_ssize_t i) {
    return PyLong_FromLong(
        AtollTensorIndex(AtollInterpreterGetOutputTensor(Handle(self), static_cast<int32_t>(i))));
  });
}

PyObject* TensorCount(PyObject* self, void*) {
  const Turn turn(self);
  return PyLong_FromLong(AtollInterpreterGetTensorCount(Handle(self)));
}

PyObject* Views(PyObject* self, void*) { return PyLong_FromSsize_t(StateOf(self)->views); }

PyObject* Nodes(PyObject* self, void*) {
  const Turn turn(self);
  return MakeList(AtollInterpreterGetNodeCount(Handle(self)), [self](Py_ssize_t i) -> PyObject* {
    AtollNodeInfo info = {};
    const AtollStatus status =
        AtollInterpreterGetNodeInfo(Handle(self), static_cast<int32_t>(i), &info);
    if (status != ATOLL_OK) return Raise(status);
    return Dict()
        .Int("index", i)
        .Text("op", info.op)
        .Text("reason", info.reason)
        .Int("partition", info.partition)
        .Int("macs", info.macs)
        .Add("inputs", IntList(info.inputs, info.input_count))
        .Add("outputs", IntList(info.outputs, info.output_count))
        .release();
  });
}

PyObject* Partitions(PyObject* self, void*) {
  const Turn turn(self);
  const int32_t count = AtollInterpreterGetPartitionCount(Handle(self));
  return MakeList(count, [self](Py_ssize_t i) -> PyObject* {
    AtollPartitionInfo info = {};
    const AtollStatus status =
        AtollInterpreterGetPartitionInfo(Handle(self), static_cast<int32_t>(i), &info);
    if (status != ATOLL_OK) return Raise(status);
    return Dict()
        .Int("node_count", info.node_count)
        .Int("instruction_count", info.instruction_count)
        .Int("resident_parameter_bytes", info.resident_parameter_bytes)
        .Int("streamed_parameter_bytes", info.streamed_parameter_bytes)
        .Int("activation_bytes", info.activation_bytes)
        .Int("input_bytes", info.input_bytes)
        .Int("output_bytes", info.output_bytes)
        .Int("estimated_cycles", info.estimated_cycles)
        .Float("modelled_seconds", info.latency.total)
        .Int("upload_bytes", info.upload_bytes)
        .Text("note", info.note)
        .release();
  });
}

PyObject* Substitute(PyObject* self, void*) {
  const Turn turn(self);
  const char* path = nullptr;
  const AtollStatus status = AtollInterpreterGetSubstitute(Handle(self), &path);
  if (status != ATOLL_OK) return Raise(status);
  return path != nullptr ? PyUnicode_DecodeFSDefault(path) : None();
}

PyObject* MemoryInfo(PyObject* self, void*) {
  AtollMemoryInfo info = {};
  const Turn turn(self);
  const AtollStatus status = AtollInterpreterGetMemoryInfo(Handle(self), &info);
  if (status != ATOLL_OK) return Raise(status);
  return Dict()
      .Int("arena_bytes", info.arena_bytes)
      .Int("constant_bytes", info.constant_bytes)
      .Int("arena_lower_bound_bytes", info.arena_lower_bound_bytes)
      .Int("packed_weight_bytes", info.packed_weight_bytes)
      .Int("used_packed_weight_bytes", info.used_packed_weight_bytes)
      .release();
}

PyObject* InvokeInfo(PyObject* self, void*) {
  AtollInvokeInfo info = {};
  const Turn turn(self);
  const AtollStatus status = AtollInterpreterGetInvokeInfo(Handle(self), &info);
  if (status != ATOLL_OK) return Raise(status);
  return Dict()
      .Int("device_cycles", info.device_cycles)
      .Int("bytes_to_device", info.bytes_to_device)
      .Int("bytes_from_device", info.bytes_from_device)
      .Float("device_seconds", info.device_seconds)
      .Int("queue_ns", info.queue_ns)
      .Int("link_out_ns", info.link_out_ns)
      .Int("compute_ns", info.compute_ns)
      .Int("link_in_ns", info.link_in_ns)
      .release();
}

PyMethodDef interpreter_methods[] = {
    {"invoke", Invoke, METH_NOARGS,
     "invoke()\n\nRuns the model, without the interpreter lock of Python."},
    {"invoke_traced", InvokeTraced, METH_NOARGS,
     "invoke_traced() -> list of dicts: invoke(), and what took time in it"},
    {"cancel", Cancel, METH_NOARGS,
     "cancel()\n\nEnds an invoke() in progress on another thread early, if that can be done."},
    {"resize", Resize, METH_O,
     "resize([(index of the input, shape), ...])\n\nBufferError while views of tensors are alive."},
    {"reset_variables", ResetVariables, METH_NOARGS,
     "reset_variables()\n\nThe next invocation is like the first."},
    {"set_input_buffer", SetInputBuffer, METH_VARARGS, "set_input_buffer(index, buffer or None)"},
    {"set_output_buffer", SetOutputBuffer, METH_VARARGS,
     "set_output_buffer(index, buffer or None)"},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef interpreter_properties[] = {
    {"input_indices", Inputs, nullptr, "Tensor indices in the file.", nullptr},
    {"output_indices", Outputs, nullptr, "Tensor indices in the file.", nullptr},
    {"tensor_count", TensorCount, nullptr, "Tensors in the file.", nullptr},
    {"view_count", Views, nullptr, "Views of tensors that are alive.", nullptr},
    {"nodes", Nodes, nullptr,
     "A list of dicts, in execution order: where each operator runs, and why.", nullptr},
    {"partitions", Partitions, nullptr, "A list of dicts: what the device runs.", nullptr},
    {"substitute", Substitute, nullptr,
     "The file that runs instead of a model compiled for a Coral, \"\" if it came from memory; "
     "None: "
     "the model itself runs.",
     nullptr},
    {"memory", MemoryInfo, nullptr, "Bytes that the interpreter needs, as a dict.", nullptr},
    {"last_invocation", InvokeInfo, nullptr,
     "What the device said about the last invocation, as a dict.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot interpreter_slots[] = {
    {Py_tp_doc, const_cast<char*>("Runs a model: Interpreter(model, delegate=None, **options).")},
    {Py_tp_new, reinterpret_cast<void*>(NewInterpreter)},
    {Py_tp_dealloc, reinterpret_cast<void*>(DeallocInterpreter)},
    {Py_tp_traverse, reinterpret_cast<void*>(TraverseInterpreter)},
    {Py_tp_clear, reinterpret_cast<void*>(ClearInterpreter)},
    {Py_tp_methods, interpreter_methods},
    {Py_tp_getset, interpreter_properties},
    {0, nullptr}};
PyType_Spec interpreter_spec = {"atoll._atoll.Interpreter", sizeof(InterpreterObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                                interpreter_slots};

}  // namespace

bool AddInterpreter(PyObject* module) {
  PyTypeObject* const type = AddType(module, "Interpreter", &interpreter_spec);
  return type != nullptr && AddTensor(module, type);
}

}  // namespace atollpython
