// SPDX-License-Identifier: Apache-2.0
//
// The part of delegate.h that makes files: compiled models, executables, and the text of those.
#include <string>
#include <vector>

#include "delegate/c_api_handles.h"
#include "driver/isa/assembly.h"
#include "runtime/c_api.h"

using atollrt::FindExecutable;
using atollrt::InvalidArgument;
using atollrt::ToC;

extern "C" {

AtollStatus AtollDelegateCompileModel(const AtollDelegate* delegate, const AtollModel* model,
                                      AtollBytesCallback callback, void* user_data) {
  if (model == nullptr) return ToC(InvalidArgument("argument 'model' is NULL"));
  if (callback == nullptr) return ToC(InvalidArgument("argument 'callback' is NULL"));
  const auto* handle = static_cast<const atollrt::DeviceDelegateHandle*>(delegate);
  const bool for_cpu = handle == nullptr || handle->device_delegate == nullptr;
  const auto bytes = for_cpu ? atollrt::CompileForCpu(*model->model)
                             : handle->device_delegate->Compile(*model->model);
  if (!bytes.ok()) return ToC(bytes.status());
  callback(bytes->data(), bytes->size(), user_data);
  return ToC({});
}

AtollStatus AtollExecutablesDisassemble(const AtollExecutables* executables, int32_t index,
                                        AtollAssemblyParameters parameters,
                                        AtollBytesCallback callback, void* user_data) {
  if (callback == nullptr) return ToC(InvalidArgument("argument 'callback' is NULL"));
  if (parameters != ATOLL_OMIT_PARAMETERS && parameters != ATOLL_WRITE_PARAMETERS) {
    return ToC(InvalidArgument("argument 'parameters' is %d", parameters));
  }
  const auto found = FindExecutable(executables, index);
  if (!found.ok()) return ToC(found.status());
  const std::string text = atollrt::DisassembleExecutable(
      (*found)->executable,
      {.node_names = (*found)->node_names, .parameters = parameters == ATOLL_WRITE_PARAMETERS});
  callback(text.data(), text.size(), user_data);
  return ToC({});
}

AtollStatus AtollAssemble(const char* text, size_t size, AtollBytesCallback callback,
                          void* user_data) {
  if (text == nullptr) return ToC(InvalidArgument("argument 'text' is NULL"));
  if (callback == nullptr) return ToC(InvalidArgument("argument 'callback' is NULL"));
  const auto executables = atollrt::AssembleExecutables({text, size});
  if (!executables.ok()) return ToC(executables.status());
  if (executables->size() != 1) {
    return ToC(atollrt::CorruptModel(
        "the text holds %zu executables, and a file holds one; keep one .executable",
        executables->size()));
  }
  const std::vector<uint8_t> bytes = atollrt::WriteExecutable((*executables)[0]);
  callback(bytes.data(), bytes.size(), user_data);
  return ToC({});
}

}  // extern "C"
