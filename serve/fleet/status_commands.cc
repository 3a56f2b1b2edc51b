// SPDX-License-Identifier: Apache-2.0
//
// atoll fleet status, and top: who works, with what, and what waits.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>

#include "serve/fleet/commands.h"
#include "serve/fleet/fleet_view.h"
#include "serve/fleet/records.h"
#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Result;
using atollrt::Status;
using Json = nlohmann::json;

constexpr size_t kMaxWorkers = 10'000;
constexpr size_t kMaxBytes = 32 << 20;  // of what all of them say

// Subjects of a stream that match `filter`, with how many messages each has; none if there is no
// such stream.
Result<std::map<std::string, uint64_t>> ListSubjects(const FleetConnection& connection,
                                                     const char* stream, const char* filter) {
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Info.SubjectsFilter = filter;
  NatsPtr<jsStreamInfo> info;
  std::map<std::string, uint64_t> subjects;
  const natsStatus status =
      js_GetStreamInfo(NatsOut(&info), connection.jetstream(), stream, &options, nullptr);
  if (status == NATS_NOT_FOUND) return subjects;
  if (status != NATS_OK) return NatsStatus(status, std::string("stream ") + stream);
  if (info->State.Subjects == nullptr) return subjects;
  for (int i = 0; i < info->State.Subjects->Count; ++i) {
    const auto& one = info->State.Subjects->List[i];
    subjects[one.Subject] = one.Msgs;
  }
  return subjects;
}

// All workers of the list. (kvStore_Keys watches the bucket, and waits without an end for a record
// that was there when it began and has expired since.)
Result<std::vector<WorkerRecord>> ListWorkers(const FleetConnection& connection,
                                              const FleetStreams& streams) {
  const std::string prefix = std::string("$KV.") + kWorkerBucket + ".";
  ATOLL_ASSIGN_OR_RETURN(const auto subjects,
                         ListSubjects(connection, (std::string("KV_") + kWorkerBucket).c_str(),
                                      (prefix + ">").c_str()));
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<kvStore> store, streams.OpenBucket(kWorkerBucket));
  std::vector<WorkerRecord> workers;
  size_t bytes = 0;
  for (const auto& [subject, messages] : subjects) {
    if (workers.size() == kMaxWorkers || bytes > kMaxBytes) break;
    if (!subject.starts_with(prefix)) continue;
    const std::string key = subject.substr(prefix.size());
    NatsPtr<kvEntry> entry;
    // One may go meanwhile.
    if (kvStore_Get(NatsOut(&entry), store.get(), key.c_str()) != NATS_OK) continue;
    bytes += static_cast<size_t>(kvEntry_ValueLen(entry.get()));
    auto record = ParseWorker({static_cast<const char*>(kvEntry_Value(entry.get())),
                               static_cast<size_t>(kvEntry_ValueLen(entry.get()))});
    if (record.ok() && record->worker == key) workers.push_back(*std::move(record));
  }
  std::sort(workers.begin(), workers.end(),
            [](const WorkerRecord& a, const WorkerRecord& b) { return a.worker < b.worker; });
  return workers;
}

// Jobs that wait, by model.
std::map<std::string, uint64_t> ListWaiting(const FleetConnection& connection) {
  std::map<std::string, uint64_t> waiting;
  const auto subjects = ListSubjects(connection, kWorkStream, "atoll.work.>");
  if (!subjects.ok()) return waiting;
  for (const auto& [subject, messages] : *subjects) {
    if (const auto address = ParseWorkSubject(subject)) waiting[address->model] += messages;
  }
  return waiting;
}

}  // namespace

int RunStatus(const FleetCommand& command, bool watches) {
  const auto connection = Connect(command.connection, "atoll fleet status", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok())
    return Fail(status);
  while (true) {
    const auto workers = TryFor(kPatience, [&] { return ListWorkers(**connection, streams); });
    if (!workers.ok()) return Fail(workers.status());
    const auto waiting = ListWaiting(**connection);
    if (command.json) {
      Json list = Json::array();
      for (const WorkerRecord& worker : *workers) {
        auto json = ParseJson(WorkerJson(worker));
        if (json.ok()) list.push_back(*std::move(json));
      }
      const Json report = {{"schema", 1},
                           {"command", "fleet status"},
                           {"workers", std::move(list)},
                           {"waiting", waiting}};
      std::printf("%s\n", DumpJson(report).c_str());
      std::fflush(stdout);
    } else {
      std::fputs(StatusTable(*workers, waiting).c_str(), stdout);
      std::fflush(stdout);
    }
    if (!watches) return kOk;
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
}

int RunTop(const TopCommand& command) {
  const auto connection = Connect(command.fleet.connection, "atoll fleet top", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.fleet.streams);
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok()) {
    return Fail(status);
  }
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  FleetView view;
  // The first look is at counts alone.
  for (int64_t look = 0;; ++look) {
    auto workers = TryFor(kPatience, [&] { return ListWorkers(**connection, streams); });
    if (!workers.ok()) return Fail(workers.status());
    view.Look(*std::move(workers), ListWaiting(**connection));
    if (look > 0) {
      // From the top of an empty screen.
      if (is_terminal && !command.fleet.json && !command.once) std::printf("\x1b[H\x1b[2J");
      std::printf("%s", (command.fleet.json ? TopJson(view) + "\n" : TopTable(view)).c_str());
      std::fflush(stdout);
      if (command.once) return kOk;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(command.interval_s));
  }
}

}  // namespace atollserve
