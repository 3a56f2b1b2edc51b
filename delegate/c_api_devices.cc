// SPDX-License-Identifier: Apache-2.0
//
// The part of delegate.h that is about devices rather than models on them: what is wrong with them,
// whether they compute right, how long a Coral would take.
#include <string>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "delegate/coral_timing.h"
#include "driver/coral/firmware.h"
#include "driver/device_name.h"
#include "driver/doctor/diagnosis.h"
#include "driver/doctor/self_test.h"
#include "driver/open_device.h"
#include "driver/usb/system_usb_bus.h"
#include "runtime/base/monotonic.h"
#include "runtime/c_api.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/self_test.h"

using atollrt::InvalidArgument;
using atollrt::SelfTestResult;
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
  struct Entry {
    std::string device;
    SelfTestResult result;
  };
  std::vector<Entry> entries;
  std::vector<AtollSelfTestResult> infos;

  void Add(const std::string& device, std::vector<SelfTestResult> results) {
    for (SelfTestResult& result : results) entries.push_back({device, std::move(result)});
  }
};

SelfTestResult TestKernels() {
  const int64_t begin_ns = atollrt::MonotonicNs();
  SelfTestResult result{.name = "kernels of every level", .status = atollrt::RunSelfTest()};
  result.seconds = static_cast<double>(atollrt::MonotonicNs() - begin_ns) * 1e-9;
  return result;
}

// Everything about `device`.
Status Test(const std::string& device, SelfTestList* list) {
  // A stand-in must not answer for a device that is lost.
  ATOLL_ASSIGN_OR_RETURN(const atollrt::DeviceName name, atollrt::ParseDeviceName(device));
  if (name.kind == atollrt::DeviceName::Kind::kCpu) {
    list->Add("cpu", {TestKernels()});
    return {};
  }
  atollrt::OpenOptions options{
      .device = device, .usb = atollrt::SystemUsbBus(), .on_loss = atollrt::OnDeviceLoss::kFail};
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<atollrt::Device> opened, OpenDevice(options));
  list->Add("cpu", {TestKernels()});
  const bool is_emulated = opened->info().emulated;
  options.device = is_emulated ? opened->info().name : "emu";
  ATOLL_ASSIGN_OR_RETURN(const atollrt::CpuFeatures available, atollrt::DetectCpuFeatures());
  for (const atollrt::CpuLevel& level : atollrt::CpuLevels()) {
    if (!atollrt::Supports(available, level.features)) continue;
    options.cpu_features = level.features;
    ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<atollrt::Device> emulator, OpenDevice(options));
    list->Add(options.device + ", " + level.name + " kernels", SelfTestDevice(emulator.get()));
  }
  const atollrt::DeviceInfo& info = opened->info();
  if (info.family != atollrt::DeviceFamily::kAtoll1) {
    // Its instructions are not known; but it has been brought up, register by register.
    list->Add(info.name, {{.name = "opened", .status = Status()}});
  } else if (!is_emulated) {
    list->Add(info.name, SelfTestDevice(opened.get()));
  }
  return {};
}

}  // namespace

extern "C" {

AtollStatus AtollDiagnose(const char* root, const AtollFinding** findings, int32_t* count) {
  if (findings == nullptr) return ToC(InvalidArgument("argument 'findings' is NULL"));
  if (count == nullptr) return ToC(InvalidArgument("argument 'count' is NULL"));
  thread_local FindingList list;
  list.findings = atollrt::Diagnose({.root = root == nullptr ? "" : root,
                                     .coral_firmware = atollrt::FindCoralFirmware("").status()});
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
  if (device == nullptr) return ToC(InvalidArgument("argument 'device' is NULL"));
  if (results == nullptr) return ToC(InvalidArgument("argument 'results' is NULL"));
  if (count == nullptr) return ToC(InvalidArgument("argument 'count' is NULL"));
  thread_local SelfTestList list;
  list = {};
  if (const Status status = Test(device, &list); !status.ok()) return ToC(status);
  for (const SelfTestList::Entry& entry : list.entries) {
    list.infos.push_back({.device = entry.device.c_str(),
                          .name = entry.result.name.c_str(),
                          .status = ToC(entry.result.status),
                          .failure = entry.result.status.message().c_str(),
                          .seconds = entry.result.seconds});
  }
  *results = list.infos.data();
  *count = static_cast<int32_t>(list.infos.size());
  return ToC(Status());
}

AtollStatus AtollEstimateCoral(const AtollModel* model, const char* host,
                               AtollCoralEstimate* estimate) {
  if (model == nullptr) return ToC(InvalidArgument("argument 'model' is NULL"));
  if (estimate == nullptr) return ToC(InvalidArgument("argument 'estimate' is NULL"));
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

}  // extern "C"
