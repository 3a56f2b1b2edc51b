// SPDX-License-Identifier: Apache-2.0
//
// What comes to a fleet by NATS, and from a spool: by the first byte, a call with its headers in
// lines in front of it, an answer, what a worker says, a placement, an object, a line of a spool,
// the subject of a job.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/check.h"
#include "serve/fleet/infer_call.h"
#include "serve/fleet/records.h"
#include "serve/fleet/spool.h"
#include "serve/fleet/subjects.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollserve::fleet_fuzzer {

namespace {

const ModelInfo& Model() {
  static const ModelInfo model = [] {
    ModelInfo made;
    made.name = "m";
    made.version = "1";
    made.inputs.push_back({.name = "in", .type = DataType::kInt8, .shape = {1, 4, 4, 3}});
    made.outputs.push_back({.name = "out", .type = DataType::kInt8, .shape = {1, 3}});
    return made;
  }();
  return model;
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

void ReadOneCall(std::string_view text) {
  CallHeaders headers;
  headers.content_type = TakeLine(&text);
  headers.json_bytes = TakeLine(&text);
  headers.budget_us = TakeLine(&text);
  headers.priority = TakeLine(&text);
  const auto body = std::make_shared<const std::string>(text);
  (void)IsShortCall(headers, body->size());
  const auto call = ReadCall(headers, body, Model(), {});
  if (!call.ok()) {
    const InferReply reply = ErrorReply(call.status());
    ATOLL_CHECK(!reply.error.empty() &&
                (reply.code == 400 || reply.code == 501 || reply.code == 503));
    return;
  }
  for (const InputTensor& input : call->request.inputs) {
    ATOLL_CHECK(input.bytes.empty() || input.owner != nullptr);
  }
  ATOLL_CHECK(call->request.model == "m" && call->request.priority < UINT32_MAX);
}

}  // namespace

ATOLL_FUZZ_TARGET(fleet) {
  if (size == 0) return 0;
  // Pictures announce their size; what they may take is limited (infer_call.cc).
  const atollrt::MemoryLimit limit(data[0] == 'c' ? int64_t{600} << 20
                                                  : atollrt::ProportionalBytes(size));
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'c':
      ReadOneCall(text);
      break;
    case 'a': {
      const std::string_view head = TakeLine(&text);
      if (const auto outputs = ParseAnswer(text, head); outputs.ok() && !head.empty()) {
        size_t bytes = 0;
        for (const OutputTensor& output : *outputs) bytes += output.bytes.size();
        ATOLL_CHECK(bytes <= text.size() * 8);
      }
      break;
    }
    case 'w':
      if (const auto worker = ParseWorker(text); worker.ok()) {
        ATOLL_CHECK(IsWorkerId(worker->worker));
        ATOLL_CHECK(ParseWorker(WorkerJson(*worker)).ok());
      }
      break;
    case 'p':
      if (const auto placed = ParsePlacement(text); placed.ok()) {
        ATOLL_CHECK(*ParsePlacement(PlacementJson(*placed)) == *placed);
      }
      break;
    case 'o':
      if (const auto object = ParseObject(text); object.ok()) {
        ATOLL_CHECK(object->nuid.find_first_of(".*> ") == std::string::npos);
        ATOLL_CHECK(object->deleted || object->sha256.size() == 32);
        ATOLL_CHECK(object->made_from.empty() || object->made_from.size() == 32);
        const auto model = ParseModelObjectName(object->name);
        const auto compiled = ParseCompiledObjectName(object->name);
        ATOLL_CHECK(!model || !compiled);
        if (compiled) {
          const PlacedModel& of = compiled->model;
          ATOLL_CHECK(CompiledObjectName(of.name, of.version, compiled->form) == object->name);
        }
      }
      break;
    case 's':
      if (const auto line = ParseSpoolLine(text); line.ok()) {
        ATOLL_CHECK(line->job.has_value() != line->done.has_value());
      }
      break;
    case 'j':
      if (const auto address = ParseWorkSubject(text)) {
        ATOLL_CHECK(WorkSubject(address->model, address->priority) == text);
      }
      break;
    default:
      break;
  }
  return 0;
}

}  // namespace atollserve::fleet_fuzzer
