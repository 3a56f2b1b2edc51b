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
#include "driver/doctor/diagnosis.h"
#include "driver/doctor/self_test.h"
#include "driver/usb/usb_bus.h"
#include "runtime/c_api.h"

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
  auto tested = atollrt::SelfTest(device, atollrt::SystemUsbBus());
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
