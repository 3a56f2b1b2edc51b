// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/compiled_forms.h"

#include <algorithm>
#include <span>

#include "atoll/atoll.hpp"

namespace atollserve {
namespace {

using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

// Executables are for this family alone.
constexpr const char* kFamily = "Atoll-1";

template <typename T>
Status StatusOf(const atollpp::Result<T>& result) {
  return Status(static_cast<StatusCode>(result.code()), result.message());
}

}  // namespace

std::string FormOf(const AtollDeviceInfo& device, const AtollDeviceDetails& details) {
  if (details.family != std::string(kFamily)) return "";
  return atollrt::Format("atoll-1-%dx%d-%lld-%lld-isa%d", device.array_rows, device.array_columns,
                         static_cast<long long>(device.memory_bytes),
                         static_cast<long long>(details.program_memory_bytes), details.isa_version);
}

Result<CompiledForm> CompileFor(const std::string& device, const std::string& model) {
  const auto loaded = atollpp::Model::FromBuffer(std::as_bytes(std::span(model)));
  if (!loaded) return StatusOf(loaded);
  const auto delegate = atollpp::Delegate::Open(device);
  if (!delegate) return StatusOf(delegate);
  const auto info = delegate->info();
  if (!info) return StatusOf(info);
  AtollDeviceDetails details = {};
  CompiledForm compiled;
  if (AtollDelegateGetDeviceDetails(delegate->get(), &details) == ATOLL_OK) {
    compiled.form = FormOf(*info, details);
  }
  if (compiled.form.empty()) {
    return atollrt::Unsupported("nothing is compiled for device '%s' (%s)", device.c_str(),
                                info->description);
  }
  const AtollStatus status = AtollDelegateCompileModel(
      delegate->get(), loaded->get(),
      [](const void* data, size_t size, void* bytes) {
        static_cast<std::string*>(bytes)->assign(static_cast<const char*>(data), size);
      },
      &compiled.bytes);
  if (status != ATOLL_OK) return Status(static_cast<StatusCode>(status), AtollLastError());
  return compiled;
}

}  // namespace atollserve
