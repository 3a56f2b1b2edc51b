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

// All workers of the list.
Result<std::vector<WorkerRecord>> ListWorkers(const FleetStreams& streams) {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<kvStore> store, streams.OpenBucket(kWorkerBucket));
  kvKeysList keys = {};
  natsStatus status = kvStore_Keys(&keys, store.get(), nullptr);
  if (status == NATS_NOT_FOUND) return std::vector<WorkerRecord>();
  if (status != NATS_OK) return NatsStatus(status, "list of workers");
  std::vector<WorkerRecord> workers;
  for (int i = 0; i < keys.Count && workers.size() < kMaxWorkers; ++i) {
    NatsPtr<kvEntry> entry;
    // One may go meanwhile.
    if (kvStore_Get(NatsOut(&entry), store.get(), keys.Keys[i]) != NATS_OK) continue;
    auto record = ParseWorker({static_cast<const char*>(kvEntry_Value(entry.get())),
                               static_cast<size_t>(kvEntry_ValueLen(entry.get()))});
    if (record.ok() && record->worker == keys.Keys[i]) workers.push_back(*std::move(record));
  }
  kvKeysList_Destroy(&keys);
  std::sort(workers.begin(), workers.end(),
            [](const WorkerRecord& a, const WorkerRecord& b) { return a.worker < b.worker; });
  return workers;
}

// Jobs that wait, by model.
std::map<std::string, uint64_t> ListWaiting(const FleetConnection& connection) {
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Info.SubjectsFilter = "atoll.work.>";
  NatsPtr<jsStreamInfo> info;
  std::map<std::string, uint64_t> waiting;
  const natsStatus status =
      js_GetStreamInfo(NatsOut(&info), connection.jetstream(), kWorkStream, &options, nullptr);
  if (status != NATS_OK || info->State.Subjects == nullptr) return waiting;
  for (int i = 0; i < info->State.Subjects->Count; ++i) {
    const auto& one = info->State.Subjects->List[i];
    if (const auto address = ParseWorkSubject(one.Subject)) waiting[address->model] += one.Msgs;
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
    const auto workers = TryFor(kPatience, [&] { return ListWorkers(streams); });
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
    auto workers = TryFor(kPatience, [&] { return ListWorkers(streams); });
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
