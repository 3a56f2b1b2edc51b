// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/fleet_view.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "runtime/base/printable.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Printable;
using Json = nlohmann::json;

// As std::printf.
__attribute__((format(printf, 2, 3))) void Append(std::string* text, const char* format, ...) {
  std::array<char, 512> line = {};
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  *text += line.data();
}

std::string ModelsOf(const WorkerRecord& worker) {
  std::string text;
  for (const WorkerModel& model : worker.models) {
    text += (text.empty() ? "" : ",") + model.name + "/" + model.version;
  }
  return text.empty() ? "-" : Printable(text);
}

void AppendWaiting(const std::map<std::string, uint64_t>& waiting, std::string* text) {
  for (const auto& [model, count] : waiting) {
    *text += std::to_string(count) + " jobs of model '" + Printable(model) + "' wait\n";
  }
}

void AppendStates(const WorkerRecord& worker, std::string* text) {
  if (worker.draining) *text += "  draining";
  if (worker.device_lost) *text += "  device lost";
  *text += "\n";
  for (const std::string& problem : worker.problems) *text += "  " + Printable(problem) + "\n";
}

double InASecond(int64_t before, int64_t after, int64_t ms) {
  return static_cast<double>(after - before) * 1000 / static_cast<double>(ms);
}

bool HasNotShrunk(const WorkerRecord& before, const WorkerRecord& after) {
  return after.frames.answered >= before.frames.answered &&
         after.frames.busy >= before.frames.busy && after.frames.late >= before.frames.late &&
         after.frames.failed >= before.frames.failed && after.jobs.done >= before.jobs.done &&
         after.jobs.failed >= before.jobs.failed;
}

}  // namespace

void FleetView::Look(std::vector<WorkerRecord> workers, std::map<std::string, uint64_t> waiting) {
  std::map<std::string, WorkerRates> rates;
  for (const WorkerRecord& now : workers) {
    const auto before = std::find_if(workers_.begin(), workers_.end(),
                                     [&](const auto& one) { return one.worker == now.worker; });
    if (before == workers_.end()) continue;
    const int64_t ms = now.up_ms - before->up_ms;
    if (ms == 0 && now.pid == before->pid) {  // it has said nothing since
      const auto known = rates_.find(now.worker);
      if (known != rates_.end()) rates.insert(*known);
      continue;
    }
    // Another process may have the same id.
    if (ms <= 0 || now.pid != before->pid || !HasNotShrunk(*before, now)) continue;
    rates[now.worker] = {.answered = InASecond(before->frames.answered, now.frames.answered, ms),
                         .busy = InASecond(before->frames.busy, now.frames.busy, ms),
                         .late = InASecond(before->frames.late, now.frames.late, ms),
                         .failed = InASecond(before->frames.failed, now.frames.failed, ms) +
                                   InASecond(before->jobs.failed, now.jobs.failed, ms),
                         .jobs = InASecond(before->jobs.done, now.jobs.done, ms)};
  }
  workers_ = std::move(workers);
  waiting_ = std::move(waiting);
  rates_ = std::move(rates);
}

const WorkerRates* FleetView::RatesOf(const std::string& worker) const {
  const auto found = rates_.find(worker);
  return found == rates_.end() ? nullptr : &found->second;
}

std::string StatusTable(const std::vector<WorkerRecord>& workers,
                        const std::map<std::string, uint64_t>& waiting) {
  std::string text;
  Append(&text, "%-28s %-28s %-6s %-30s %9s %6s %6s %8s %6s\n", "worker", "device", "free",
         "models", "answered", "busy", "late", "jobs", "failed");
  for (const WorkerRecord& worker : workers) {
    Append(&text, "%-28s %-28.100s %2d/%-3d %-30.200s %9lld %6lld %6lld %8lld %6llu",
           worker.worker.c_str(), Printable(worker.device).c_str(), worker.free, worker.places,
           ModelsOf(worker).c_str(), static_cast<long long>(worker.frames.answered),
           static_cast<long long>(worker.frames.busy), static_cast<long long>(worker.frames.late),
           static_cast<long long>(worker.jobs.done),
           static_cast<unsigned long long>(worker.jobs.failed) +
               static_cast<unsigned long long>(worker.frames.failed));
    AppendStates(worker, &text);
  }
  if (workers.empty()) text += "no workers\n";
  AppendWaiting(waiting, &text);
  return text;
}

std::string TopTable(const FleetView& view) {
  std::string text;
  Append(&text, "%-28s %-20s %-6s %9s %8s %8s %7s %7s %8s %8s  %s\n", "worker", "device", "free",
         "frames/s", "p50 ms", "p99 ms", "busy/s", "late/s", "failed/s", "jobs/s", "models");
  int64_t places = 0, free = 0;
  WorkerRates all;
  for (const WorkerRecord& worker : view.workers()) {
    places += worker.places;
    free += worker.free;
    Append(&text, "%-28s %-20.100s %2d/%-3d ", worker.worker.c_str(),
           Printable(worker.device).c_str(), worker.free, worker.places);
    const WorkerRates* const rates = view.RatesOf(worker.worker);
    const auto number = [&](int width, int digits, bool is_known, double value) {
      if (is_known) {
        Append(&text, "%*.*f ", width, digits, value);
      } else {
        Append(&text, "%*s ", width, "-");
      }
    };
    const WorkerRates known = rates == nullptr ? WorkerRates() : *rates;
    const Latencies& latencies = worker.latencies;
    number(9, 1, rates != nullptr, known.answered);
    number(8, 2, latencies.count > 0, static_cast<double>(latencies.p50_us) / 1000);
    number(8, 2, latencies.count > 0, static_cast<double>(latencies.p99_us) / 1000);
    number(7, 1, rates != nullptr, known.busy);
    number(7, 1, rates != nullptr, known.late);
    number(8, 1, rates != nullptr, known.failed);
    number(8, 1, rates != nullptr, known.jobs);
    Append(&text, " %.200s", ModelsOf(worker).c_str());
    AppendStates(worker, &text);
    all.answered += known.answered;
    all.jobs += known.jobs;
  }
  Append(&text, "%zu workers, %lld of %lld places free, %.1f frames/s, %.1f jobs/s\n",
         view.workers().size(), static_cast<long long>(free), static_cast<long long>(places),
         all.answered, all.jobs);
  AppendWaiting(view.waiting(), &text);
  return text;
}

std::string TopJson(const FleetView& view) {
  Json workers = Json::array();
  for (const WorkerRecord& worker : view.workers()) {
    Json models = Json::array();
    for (const WorkerModel& model : worker.models)
      models.push_back(model.name + "/" + model.version);
    Json one = {{"worker", worker.worker},
                {"device", worker.device},
                {"places", worker.places},
                {"free", worker.free},
                {"draining", worker.draining},
                {"device_lost", worker.device_lost},
                {"models", std::move(models)},
                {"problems", worker.problems},
                {"latency_frames", worker.latencies.count},
                {"latency_p50_us", nullptr},
                {"latency_p99_us", nullptr},
                {"per_second", nullptr}};
    if (worker.latencies.count > 0) {
      one["latency_p50_us"] = worker.latencies.p50_us;
      one["latency_p99_us"] = worker.latencies.p99_us;
    }
    if (const WorkerRates* const rates = view.RatesOf(worker.worker)) {
      one["per_second"] = {{"answered", rates->answered},
                           {"busy", rates->busy},
                           {"late", rates->late},
                           {"failed", rates->failed},
                           {"jobs", rates->jobs}};
    }
    workers.push_back(std::move(one));
  }
  return DumpJson({{"schema", 1},
                   {"command", "fleet top"},
                   {"workers", std::move(workers)},
                   {"waiting", view.waiting()}});
}

}  // namespace atollserve
