// SPDX-License-Identifier: Apache-2.0
//
// What an Interpreter and its Tensors have in common: an AtollInterpreter, and whose turn it is.
//
// What others see of a tensor keeps the tensor, and that the interpreter: deleting the interpreter
// frees nothing that somebody still looks at. Memory that would move, as inputs have other shapes,
// is kept where it is by refusing to allocate while somebody looks.
#pragma once

#include <mutex>
#include <vector>

#include "python/extension/python.h"

namespace atollpython {

// Everything but `mutex` is guarded by the GIL, the interpreter by `mutex`.
struct InterpreterState {
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
  InterpreterState* state;
};

inline InterpreterState* StateOf(PyObject* interpreter) {
  return reinterpret_cast<InterpreterObject*>(interpreter)->state;
}
inline AtollInterpreter* Handle(PyObject* interpreter) { return StateOf(interpreter)->interpreter; }

// While this lives, the interpreter is the calling thread's.
class Turn {
 public:
  explicit Turn(PyObject* interpreter) : mutex_(StateOf(interpreter)->mutex) {
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

// Adds Tensor, the type of tensors of `interpreter_type`; false with an exception set.
bool AddTensor(PyObject* module, PyTypeObject* interpreter_type);

}  // namespace atollpython
