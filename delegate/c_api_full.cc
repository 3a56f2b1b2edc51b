// SPDX-License-Identifier: Apache-2.0
//
// The part of delegate.h that libatoll-core has not: what is wrong with devices, whether they
// compute right, how long a Coral would take; compiled models, executables and their text as files.
#include <string>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "delegate/c_api_handles.h"
#include "delegate/coral_timing.h"
#include "driver/coral/firmware.h"
#include "driver/doctor/diagnosis.h"
#include "driver/doctor/self_test.h"
#include "driver/isa/assembly.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/usb/usb_bus.h"
#include "runtime/c_api.h"

using atollrt::AllGiven;
using atollrt::FindExecutable;
using atollrt::InvalidArgument;
using atollrt::Status;
using atollrt::ToC;

namespace {

// Keeps what AtollDiagnose hands out.
struct FindingList {
  std::vector<atollrt::Finding> findings;
  std::vector<AtollFinding> infos;
};

// Keeps what AtollDeviceSelfTest hands out.
struct SelfTestList {
  std::vector<atollrt::SelfTestResult> results;
  std::vector<AtollSelfTestResult> infos;
};

}  // namespace

extern "C" {

AtollStatus AtollDiagnose(const char* root, const AtollFinding** findings, int32_t* count) {
  if (!AllGiven({{"findings", findings}, {"count", count}})) return ATOLL_INVALID_ARGUMENT;
  thread_local FindingList list;
  atollrt::DiagnosisOptions options;
  options.root = root == nullptr ? "" : root;
  options.coral_firmware = atollrt::FindCoralFirmware("").status();
  if (options.root.empty()) {
    options.pcie = atollrt::SystemPcieBus();
    options = atollrt::OnThisComputer(std::move(options));
  }
  list.findings = atollrt::Diagnose(options);
  list.infos.clear();
  for (const atollrt::Finding& finding : list.findings) {
    list.infos.push_back({.level = static_cast<AtollFindingLevel>(finding.level),
                          .code = finding.code,
                          .device = finding.device.c_str(),
                          .message = finding.message.c_str(),
                          .fix = finding.fix.c_str()});
  }
  *findings = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

AtollStatus AtollDeviceSelfTest(const char* device, const AtollSelfTestResult** results,
                                int32_t* count) {
  if (!AllGiven({{"device", device}, {"results", results}, {"count", count}}))
    return ATOLL_INVALID_ARGUMENT;
  thread_local SelfTestList list;
  list = {};
  auto tested = atollrt::SelfTest(device, atollrt::SystemUsbBus(), atollrt::SystemPcieBus());
  if (!tested.ok()) return ToC(tested.status());
  list.results = *std::move(tested);
  for (const atollrt::SelfTestResult& result : list.results) {
    list.infos.push_back({.device = result.device.c_str(),
                          .name = result.name.c_str(),
                          .status = ToC(result.status),
                          .failure = result.status.message().c_str(),
                          .seconds = result.seconds});
  }
  *results = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

AtollStatus AtollEstimateCoral(const AtollModel* model, const char* host,
                               AtollCoralEstimate* estimate) {
  if (!AllGiven({{"model", model}, {"estimate", estimate}})) return ATOLL_INVALID_ARGUMENT;
  const auto found = atollrt::FindCoralHost(host == nullptr ? "usb3" : host);
  if (!found.ok()) return ToC(found.status());
  const auto program = atollrt::DescribeForCoral(model->model->graph());
  if (!program.ok()) return ToC(program.status());
  const atollrt::CoralEstimate e =
      atollrt::EstimateCoral(*program, {.rates = atollrt::FittedCoralRates(), .host = *found});
  *estimate = {.seconds = e.seconds(),
               .host_seconds = e.host_seconds,
               .link_out_seconds = e.link_out_seconds,
               .dense_seconds = e.dense_seconds,
               .vector_seconds = e.vector_seconds,
               .layer_seconds = e.layer_seconds,
               .parameter_seconds = e.parameter_seconds,
               .link_in_seconds = e.link_in_seconds,
               .upload_seconds = e.upload_seconds,
               .instruction_bytes = static_cast<int64_t>(program->instruction_bytes),
               .input_bytes = static_cast<int64_t>(program->input_bytes),
               .output_bytes = static_cast<int64_t>(program->output_bytes),
               .cached_parameter_bytes = static_cast<int64_t>(e.cached_bytes),
               .streamed_parameter_bytes = static_cast<int64_t>(e.streamed_bytes),
               .device_node_count = program->device_nodes,
               .host_node_count = program->host_nodes};
  return ToC(Status());
}

AtollStatus AtollDelegateCompileModel(const AtollDelegate* delegate, const AtollModel* model,
                                      AtollBytesCallback callback, void* user_data) {
  if (!AllGiven({{"model", model}, {"callback", callback}})) return ATOLL_INVALID_ARGUMENT;
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
  if (!AllGiven({{"text", text}, {"callback", callback}})) return ATOLL_INVALID_ARGUMENT;
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
