// SPDX-License-Identifier: Apache-2.0
//
// What is behind the handles of c_api.h.
#ifndef ATOLL_COMPAT_TENSORFLOWLITE_C_INTERPRETER_H_
#define ATOLL_COMPAT_TENSORFLOWLITE_C_INTERPRETER_H_

#include <memory>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "compat/tensorflowlite_c/delegates.h"
#include "compat/tensorflowlite_c/reporter.h"

struct TfLiteModel {
  std::shared_ptr<AtollModel> model;
};

struct TfLiteInterpreterOptions {
  int32_t num_threads = -1;
  bool can_cancel = false;
  atollcompat::Reporter reporter;
  std::vector<TfLiteDelegate*> delegates;
};

namespace atollcompat {

struct InterpreterDelete {
  void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
};

}  // namespace atollcompat

// Tensors are TensorFlow Lite's own structs, which programs read and write without a call. They are
// made once, at their index in the file, and stay where they are; dims and data change with the
// shapes.
struct TfLiteInterpreter {
 public:
  // Null, with the reason reported, if the model cannot run.
  static std::unique_ptr<TfLiteInterpreter> Create(std::shared_ptr<AtollModel> model,
                                                   const TfLiteInterpreterOptions& options);
  ~TfLiteInterpreter();

  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  TfLiteStatus Cancel();
  TfLiteStatus ResetVariableTensors();
  TfLiteStatus ResizeInput(int32_t input, const int* dims, int32_t count);
  // Gives the graph to another delegate. Tensors need to be allocated again.
  TfLiteStatus ModifyGraph(TfLiteDelegate* delegate);

  TfLiteTensor* tensor(int32_t index);
  const std::vector<int>& inputs() const { return inputs_; }  // indices in the file
  const std::vector<int>& outputs() const { return outputs_; }
  const AtollModel& model() const { return *model_; }
  const atollcompat::Reporter& reporter() const { return options_.reporter; }

 private:
  TfLiteInterpreter(std::shared_ptr<AtollModel> model, const TfLiteInterpreterOptions& options)
      : model_(std::move(model)), options_(options) {}
  // False, with the reason reported and all as it was, if the model cannot run on `device`.
  bool MakeInterpreter(const atollcompat::Device& device);
  // Those of the interpreter or, if there is none, of the model.
  void MakeTensors();
  // The interpreter's tensor at an index in the file, if it is of the same model as ours.
  const AtollTensor* Find(size_t index) const;
  void RefreshDims(size_t index, const AtollTensor& tensor);
  // Shapes, sizes and addresses as they are now.
  void RefreshTensors();
  void ForgetData();
  AtollTensor* InputOrOutput(size_t index, bool is_input);

  std::shared_ptr<AtollModel> model_;
  TfLiteInterpreterOptions options_;
  atollcompat::Device device_;
  // Null for a model with a custom operator that nobody here knows, and `unresolved_` says so: such
  // an interpreter cannot be allocated, and its tensors have no data.
  std::unique_ptr<AtollInterpreter, atollcompat::InterpreterDelete> interpreter_;
  std::string unresolved_;
  std::vector<TfLiteTensor> tensors_;
  std::vector<void*> own_data_;  // of each tensor, where the interpreter has it
  std::vector<std::string> names_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  bool is_allocated_ = false;
};

struct TfLiteSignatureRunner {
  struct Tensor {
    std::string name;
    int32_t index;  // in the file
  };
  TfLiteInterpreter* interpreter;
  std::vector<Tensor> inputs;  // by name
  std::vector<Tensor> outputs;
};

#endif  // ATOLL_COMPAT_TENSORFLOWLITE_C_INTERPRETER_H_
