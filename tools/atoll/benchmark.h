// SPDX-License-Identifier: Apache-2.0
//
// The parts of `atoll benchmark`: what its reports say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/atoll/load_run.h"
#include "tools/atoll/profile_data.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {

// Where the time of an entry goes by kinds of operators, from a profile that was taken after it was
// measured; null of what is not within this process.
struct OperatorTimes {
  std::string op;
  int64_t count = 0;
  int64_t on_device = 0;
  int64_t macs = 0;
  double cpu_ms = 0;       // measured, of an inference; of those on the CPU
  double modelled_ms = 0;  // what those on the device add to its modelled time
};
// The operators with the most time first.
std::vector<OperatorTimes> SumOperators(const Profile& profile);

struct EntryReport {
  const Entry* entry = nullptr;
  Json description;  // of its target, after it was measured
  std::optional<Profile> profile;
};

// In ascending order; may be empty.
std::vector<double> SortedTimes(const Entry& entry);
double MeanMs(const std::vector<double>& values);  // not empty
std::optional<double> RateOf(const Entry& entry);  // inferences in a second
int64_t PeakRssBytes();
std::string PercentName(double percent);  // "99.9"

// The one form of all results, whatever the target: docs/benchmarking.md.
Json BenchmarkJson(const std::vector<EntryReport>& entries, const std::vector<double>& percentiles,
                   bool is_table);
std::string BenchmarkText(const std::vector<EntryReport>& entries,
                          const std::vector<double>& percentiles, bool is_table);
// A line of names, and one for each entry; empty where nothing was measured (RFC 4180).
std::string BenchmarkCsv(const std::vector<EntryReport>& entries,
                         const std::vector<double>& percentiles);
// A page of HTML that needs no other file.
std::string BenchmarkPage(const std::vector<EntryReport>& entries,
                          const std::vector<double>& percentiles, bool is_table);

// `atoll benchmark compare`.
void AddCompareCommand(CLI::App* benchmark);

}  // namespace atollcmd
