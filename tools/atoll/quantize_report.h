// SPDX-License-Identifier: Apache-2.0
//
// What `atoll quantize` reports beside what the library says: where both models run, how long that
// takes, and what they make of the samples that they differ on most.
#pragma once

#include <cstddef>
#include <cstdio>
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

// The samples that both models differ on most, which are few but may be large: they lie in a
// temporary file, or in memory where none can be made.
class WorstSamples {
 public:
  // Those that `worst` has by number. It gets their names, what `before` makes of them and, with
  // pictures, small ones.
  WorstSamples(Calibration* calibration, const LoadedModel& before, bool with_pictures,
               Json* worst);
  // Adds what `after` makes of them.
  void Describe(const LoadedModel& after, Json* worst);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Kept {
    size_t entry;      // of `worst`
    Sample in_memory;  // if empty, the next one in the file
  };
  // False, from then on, once the file takes no more.
  bool Write(const Sample& sample);

  std::unique_ptr<std::FILE, Close> file_;
  bool writable_;
  Sample sample_;
  std::vector<Kept> kept_;
};

// The report for people.
std::string QuantizeReportText(const Json& report);

}  // namespace atollcmd
