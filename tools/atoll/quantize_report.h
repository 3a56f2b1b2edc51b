// SPDX-License-Identifier: Apache-2.0
//
// What `atoll quantize` reports beside what the library says: where both models run, how long that
// takes, and what they make of the samples that they differ on most.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "tools/atoll/calibration.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// A model on a device, run on real numbers. Failures throw CommandError.
class LoadedModel {
 public:
  // `bytes` are copied. `what` is for messages: "the float model".
  LoadedModel(std::string_view bytes, const std::string& what, const char* device, int threads);
  // Of a file, which is mapped.
  LoadedModel(const std::string& path, const char* device, int threads);

  AtollInterpreter* interpreter() const { return interpreter_.get(); }

  // The real numbers that come out of the first output.
  std::vector<double> Run(const Sample& sample) const;

 private:
  void Prepare(const std::string& what, const char* device, int threads);

  std::unique_ptr<AtollModel, Deleter<AtollModelDelete>> model_;
  std::unique_ptr<AtollDelegate, Deleter<AtollDelegateDelete>> delegate_;
  std::unique_ptr<AtollInterpreter, Deleter<AtollInterpreterDelete>> interpreter_;
};

// What runs where, and the modelled time; the operators on the CPU with why.
Json DeviceUseJson(const LoadedModel& model);

// Median of a few runs on the CPU, measured.
double CpuMs(const LoadedModel& model, const Sample& sample);

// The worst samples, which `worst` has by number, with their names and, for the page, small
// pictures.
std::map<int64_t, Sample> WorstSamples(Calibration* calibration, bool with_pictures, Json* worst);
// What a model makes of them, as `which`: "before" or "after".
void DescribeWorst(const std::map<int64_t, Sample>& samples, const LoadedModel& model,
                   const char* which, Json* worst);

// The report for people.
std::string QuantizeReportText(const Json& report);

}  // namespace atollcmd
