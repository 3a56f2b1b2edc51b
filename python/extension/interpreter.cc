// SPDX-License-Identifier: Apache-2.0
//
// Interpreter: an AtollInterpreter for any threads, which take turns; and Tensor, one of its
// tensors, whose memory others see through the buffer protocol.
//
// What others see of a tensor keeps the tensor, and that the interpreter: deleting the interpreter
// frees nothing that somebody still looks at. Memory that would move, as inputs have other shapes,
// is kept where it is by refusing to allocate while somebody looks.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "python/extension/python.h"

namespace atollpython {
namespace {

PyTypeObject* interpreter_type = nullptr;

// Everything but `mutex` is guarded by the GIL, the interpreter by `mutex`.
struct State {
  AtollInterpreter* interpreter = nullptr;
  pid_t owner = getpid();
  // Whoever waits for it does so without the GIL. Recursive, as making an object may run
  // finalizers.
  std::recursive_mutex mutex;
  Py_ssize_t views = 0;
  bool invoking = false;
  // Inputs and outputs that lie in memory of others, by their tensors.
  struct Bound {
    const AtollTensor* tensor;
    Memory memory;
  };
  std::vector<Bound> bound;

  const Memory* BoundMemory(const AtollTensor* tensor) const {
    for (const Bound& entry : bound) {
      if (entry.tensor == tensor) return &entry.memory;
    }
    return nullptr;
  }
};

struct InterpreterObject {
  PyObject base;
  State* state;
};

State* StateOf(PyObject* self) { return reinterpret_cast<InterpreterObject*>(self)->state; }
AtollInterpreter* Handle(PyObject* self) { return StateOf(self)->interpreter; }

// While this lives, the interpreter is the calling thread's.
class Turn {
 public:
  explicit Turn(PyObject* self) : mutex_(StateOf(self)->mutex) {
    if (mutex_.try_lock()) return;
    PyThreadState* const state = PyEval_SaveThread();
    mutex_.lock();
    PyEval_RestoreThread(state);
  }
  ~Turn() { mutex_.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::recursive_mutex& mutex_;
};

PyObject* None() {
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject* NoneOr(AtollStatus status) { return status == ATOLL_OK ? None() : Raise(status); }

// ---- Interpreter --------------------------------------------------------------------------------

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
  auto* const state = new State;
  state->interpreter = interpreter;
  reinterpret_cast<InterpreterObject*>(self)->state = state;
  return self;
}

// The collector sees whose memory is bound, so that what refers to its interpreter is collected.
int TraverseInterpreter(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const State* const state = StateOf(self);
  if (state == nullptr) return 0;  // not made yet
  for (const State::Bound& entry : state->bound) Py_VISIT(entry.memory.object());
  return 0;
}

// Nobody else has the interpreter; finalizers may yet call it.
int ClearInterpreter(PyObject* self) {
  State* const state = StateOf(self);
  AtollInterpreter* const interpreter = state->interpreter;
  for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter); ++i) {
    AtollInterpreterSetInputBuffer(interpreter, i, nullptr, 0);
  }
  for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
    AtollInterpreterSetOutputBuffer(interpreter, i, nullptr, 0);
  }
  std::vector<State::Bound> released;
  released.swap(state->bound);
  return 0;
}

void DeallocInterpreter(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* const type = Py_TYPE(self);
  State* const state = StateOf(self);
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

AtollStatus InvokeWithoutGil(State* state) {
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
  State* const state = StateOf(self);
  std::vector<State::Bound> released;  // after the turn, as it may run others' code
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
  State* const state = StateOf(self);
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
    State::Bound& entry = state->bound[i];
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
  State* const state = StateOf(self);
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

// ---- Tensor -------------------------------------------------------------------------------------

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
                                  interpreter_type, &owner, &index) == 0) {
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
  State* const state = StateOf(object.owner);
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

bool AddInterpreter(PyObject* module) {
  interpreter_type = AddType(module, "Interpreter", &interpreter_spec);
  return interpreter_type != nullptr && AddType(module, "Tensor", &tensor_spec) != nullptr;
}

}  // namespace atollpython
