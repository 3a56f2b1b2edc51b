// SPDX-License-Identifier: Apache-2.0
//
// FleetView: what a fleet does, from what its workers say of themselves: counts that grow become
// rates between what a worker said and what it says later, by its own clock. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "serve/fleet/records.h"

namespace atollserve {

// Of a worker, in a second, from its counts (records.h).
struct WorkerRates {
  double answered = 0;  // frames with a result
  double busy = 0;      // frames refused at once, for want of a place
  double late = 0;      // frames whose budget was spent
  double failed = 0;    // frames and jobs
  double jobs = 0;      // done
};

class FleetView {
 public:
  // What all workers say now, in their order, and the jobs that wait, by model.
  void Look(std::vector<WorkerRecord> workers, std::map<std::string, uint64_t> waiting);

  const std::vector<WorkerRecord>& workers() const { return workers_; }
  const std::map<std::string, uint64_t>& waiting() const { return waiting_; }
  // nullptr of one that has said something once only since it is there.
  const WorkerRates* RatesOf(const std::string& worker) const;

 private:
  std::vector<WorkerRecord> workers_;
  std::map<std::string, uint64_t> waiting_;
  std::map<std::string, WorkerRates> rates_;
};

// Tables for people, without what a terminal would do: what workers have done since they are there,
// and what they do now.
std::string StatusTable(const std::vector<WorkerRecord>& workers,
                        const std::map<std::string, uint64_t>& waiting);
std::string TopTable(const FleetView& view);
std::string TopJson(const FleetView& view);

}  // namespace atollserve
