// SPDX-License-Identifier: Apache-2.0
//
// Samples on their way into interpreters: checked once, kept in a file without a name, which takes
// no memory of the process, and read again as often as it takes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "quantize/quantizer.h"
#include "runtime/graph/graph.h"

namespace atollrt {

class Samples {
 public:
  // `graph` and `data` outlive this. Without room for the file, `data` is rewound for each pass.
  Samples(const Graph& graph, CalibrationData* data);

  // The next sample, a span for each input of the graph; empty: there is none. Valid until the next
  // call. kInvalidArgument names the sample and the input whose values are wrong.
  Result<std::span<const std::vector<float>>> Next();
  Status Rewind();
  // The first pass, which stores them, before there is anything else that needs memory; nothing
  // where there is no room for the file. `step` is called for each; an error of it ends the pass.
  Status Collect(const std::function<Status()>& step);
  // The samples of a pass that reached its end.
  int64_t count() const { return count_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  Result<bool> Read();
  Status Check() const;
  void Store();

  const Graph& graph_;
  CalibrationData* const data_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::vector<std::vector<float>> sample_;
  int64_t next_ = 0;
  int64_t count_ = -1;     // -1: no pass has ended
  bool complete_ = false;  // the file holds all samples
};

}  // namespace atollrt
