// SPDX-License-Identifier: Apache-2.0
//
// Fits the parameters of delegate/coral_timing.cc to published latencies and prints them as they
// stand there:
//
//   coral_fit bench/coral_latencies.csv           prints the lines
//   coral_fit --check bench/coral_latencies.csv   fails if the committed ones differ by over 0.1 %
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "bench/coral_calibration.h"

namespace atollrt {
namespace {

void Print(const CoralCalibration& c) {
  std::printf(
      "constexpr CoralRates kRates = {.dense_macs_per_cycle = %.5g,\n"
      "                               .vector_operations_per_cycle = %.5g,\n"
      "                               .cycles_per_layer = %.5g};\n"
      "constexpr CoralHost kHosts[] = {\n",
      c.rates.dense_macs_per_cycle, c.rates.vector_operations_per_cycle, c.rates.cycles_per_layer);
  for (const CoralHost& host : c.hosts) {
    std::printf("    {\"%s\", \"%s\", %.5ge6, %.5ge-3},\n", host.name, host.summary,
                host.link_bytes_per_second * 1e-6, host.request_seconds * 1e3);
  }
  std::printf("};\n");
}

bool IsSame(const char* what, double committed, double fitted) {
  constexpr double kTolerance = 1e-3;
  if (std::abs(committed / fitted - 1) <= kTolerance) return true;
  std::printf("%s is %.6g in delegate/coral_timing.cc, the fit gives %.6g\n", what, committed,
              fitted);
  return false;
}

bool IsCurrent(const CoralCalibration& fitted) {
  const CoralCalibration committed = CommittedCalibration();
  bool same = IsSame("dense_macs_per_cycle", committed.rates.dense_macs_per_cycle,
                     fitted.rates.dense_macs_per_cycle);
  same &= IsSame("vector_operations_per_cycle", committed.rates.vector_operations_per_cycle,
                 fitted.rates.vector_operations_per_cycle);
  same &=
      IsSame("cycles_per_layer", committed.rates.cycles_per_layer, fitted.rates.cycles_per_layer);
  for (size_t i = 0; i < fitted.hosts.size(); ++i) {
    const CoralHost& host = fitted.hosts[i];
    same &= IsSame(host.name, committed.hosts[i].link_bytes_per_second, host.link_bytes_per_second);
    same &= IsSame(host.name, committed.hosts[i].request_seconds, host.request_seconds);
  }
  return same;
}

int Main(bool check, const std::string& path) {
  const auto rows = ReadPublishedLatencies(path);
  const auto predictor = rows.ok() ? CoralPredictor::Create(*rows) : rows.status();
  if (!predictor.ok()) {
    std::fprintf(stderr, "coral_fit: %s\n", predictor.status().message().c_str());
    return 1;
  }
  const CoralCalibration fitted = FitCoral(*rows, *predictor);
  if (check) return IsCurrent(fitted) ? 0 : 1;
  Print(fitted);
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  if (argc == 2 && argv[1][0] != '-') return atollrt::Main(false, argv[1]);
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) return atollrt::Main(true, argv[2]);
  std::fprintf(stderr, "usage: coral_fit [--check] coral_latencies.csv\n");
  return 2;
}
