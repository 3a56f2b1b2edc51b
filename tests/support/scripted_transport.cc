// SPDX-License-Identifier: Apache-2.0
#include "tests/support/scripted_transport.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr size_t kMaxShown = 64;
  std::string text;
  for (const uint8_t byte : bytes.first(std::min(bytes.size(), kMaxShown))) {
    text += Format("%02x ", byte);
  }
  return text + (bytes.size() > kMaxShown ? "..." : "");
}

std::string Describe(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kControl:
      return Format("Control(%02X %02X %04X %04X)", step.setup.request_type, step.setup.request,
                    step.setup.value, step.setup.index);
    case Step::Kind::kBulkOut:
      return Format("BulkOut(%02X, %zu bytes: %s)", step.endpoint, step.bytes.size(),
                    Hex(step.bytes).c_str());
    case Step::Kind::kBulkIn:
      return Format("BulkIn(%02X)", step.endpoint);
    case Step::Kind::kReset:
      return "Reset()";
  }
  return "?";
}

Step ControlStep(Register address, RegisterAccess access, uint32_t value) {
  Step step;
  step.setup = RegisterRequest(static_cast<uint32_t>(address), RegisterWidth::k32, access);
  step.bytes.resize(4);
  StoreLittleEndian(step.bytes.data(), value);
  return step;
}

}  // namespace

Step ExpectRead(Register address, uint32_t reply) {
  return ControlStep(address, RegisterAccess::kRead, reply);
}

Step ExpectWrite(Register address, uint32_t value) {
  return ControlStep(address, RegisterAccess::kWrite, value);
}

Step ExpectBulkOut(std::vector<uint8_t> bytes) {
  Step step;
  step.kind = Step::Kind::kBulkOut;
  step.endpoint = kRecordEndpoint;
  step.bytes = std::move(bytes);
  return step;
}

Step ExpectBulkIn(uint8_t endpoint, std::vector<uint8_t> reply) {
  Step step;
  step.kind = Step::Kind::kBulkIn;
  step.endpoint = endpoint;
  step.bytes = std::move(reply);
  return step;
}

Step ExpectReset() {
  Step step;
  step.kind = Step::Kind::kReset;
  return step;
}

Step Fails(Step step, StatusCode code) {
  step.code = code;
  return step;
}

Step During(Step step, std::function<void()> action) {
  step.during = std::move(action);
  return step;
}

std::vector<Step> Story(std::vector<std::vector<Step>> parts) {
  std::vector<Step> story;
  for (std::vector<Step>& part : parts) {
    story.insert(story.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
  }
  return story;
}

ScriptedTransport::ScriptedTransport(std::vector<Step> steps, FakeClock* clock)
    : steps_(std::move(steps)), clock_(clock) {}

ScriptedTransport::~ScriptedTransport() {
  if (broken_ || next_ == steps_.size()) return;
  ADD_FAILURE() << "the story has " << steps_.size() << " steps, the host took only " << next_
                << "; next would be " << Describe(steps_[next_]);
}

// The next step if it is of this kind, else nullptr and the test has failed.
const Step* ScriptedTransport::Next(Step::Kind kind, const std::string& call) {
  if (broken_) return nullptr;
  if (next_ == steps_.size()) {
    broken_ = true;
    ADD_FAILURE() << "the story is over after " << next_ << " steps, but the host calls " << call;
    return nullptr;
  }
  const Step& step = steps_[next_++];
  if (step.kind == kind) return &step;
  broken_ = true;
  ADD_FAILURE() << "step " << next_ - 1 << ": expected " << Describe(step) << ", the host calls "
                << call;
  return nullptr;
}

Status ScriptedTransport::Finish(const Step& step, Deadline deadline) {
  if (step.during) step.during();
  if (step.code == StatusCode::kOk) return {};
  if (step.code == StatusCode::kTimeout) clock_->AdvanceTo(deadline);
  return Status(step.code, "as the story says");
}

Status ScriptedTransport::Control(const ControlSetup& setup, std::span<uint8_t> data,
                                  Deadline deadline) {
  Step made;
  made.setup = setup;
  const bool is_read = (setup.request_type & 0x80) != 0;
  std::string call = Describe(made);
  if (!is_read) call += " with " + Hex(data);
  const Step* step = Next(Step::Kind::kControl, call);
  if (step == nullptr) return InternalError("not in the story");
  const bool matches = Describe(*step) == Describe(made) && step->bytes.size() == data.size() &&
                       (is_read || std::equal(data.begin(), data.end(), step->bytes.begin()));
  if (!matches) {
    broken_ = true;
    ADD_FAILURE() << "step " << next_ - 1 << ": expected " << Describe(*step) << " with "
                  << Hex(step->bytes) << ", the host calls " << call;
    return InternalError("not in the story");
  }
  ATOLL_RETURN_IF_ERROR(Finish(*step, deadline));
  if (is_read) std::copy(step->bytes.begin(), step->bytes.end(), data.begin());
  return {};
}

Status ScriptedTransport::BulkOut(uint8_t endpoint, std::span<const uint8_t> data,
                                  Deadline deadline) {
  Step made = ExpectBulkOut({data.begin(), data.end()});
  made.endpoint = endpoint;
  const Step* step = Next(Step::Kind::kBulkOut, Describe(made));
  if (step == nullptr) return InternalError("not in the story");
  if (step->endpoint != endpoint || step->bytes != made.bytes) {
    broken_ = true;
    const auto [mine, theirs] =
        std::mismatch(made.bytes.begin(), made.bytes.end(), step->bytes.begin(), step->bytes.end());
    ADD_FAILURE() << "step " << next_ - 1 << ": expected\n  " << Describe(*step)
                  << "\nthe host calls\n  " << Describe(made) << "\nfirst difference at byte "
                  << mine - made.bytes.begin();
    return InternalError("not in the story");
  }
  return Finish(*step, deadline);
}

Result<size_t> ScriptedTransport::BulkIn(uint8_t endpoint, std::span<uint8_t> data,
                                         Deadline deadline) {
  const std::string call = Format("BulkIn(%02X, %zu bytes)", endpoint, data.size());
  const Step* step = Next(Step::Kind::kBulkIn, call);
  if (step == nullptr) return InternalError("not in the story");
  if (step->endpoint != endpoint || step->bytes.size() > data.size()) {
    broken_ = true;
    ADD_FAILURE() << "step " << next_ - 1 << ": expected " << Describe(*step) << " that gives "
                  << step->bytes.size() << " bytes, the host calls " << call;
    return InternalError("not in the story");
  }
  ATOLL_RETURN_IF_ERROR(Finish(*step, deadline));
  std::copy(step->bytes.begin(), step->bytes.end(), data.begin());
  return step->bytes.size();
}

Result<size_t> ScriptedTransport::InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                              Deadline deadline) {
  return BulkIn(endpoint, data, deadline);
}

Status ScriptedTransport::Reset(Deadline deadline) {
  const Step* step = Next(Step::Kind::kReset, "Reset()");
  if (step == nullptr) return InternalError("not in the story");
  return Finish(*step, deadline);
}

}  // namespace atollrt
