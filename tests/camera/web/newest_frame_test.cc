// SPDX-License-Identifier: Apache-2.0
#include "camera/web/newest_frame.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(NewestFrame, GivesTheNewestOnly) {
  NewestFrame frames;
  EXPECT_EQ(frames.TakeIfNewerThan(0), nullptr);
  EXPECT_EQ(frames.number(), 0u);
  frames.Put(Bytes{1});
  frames.Put(Bytes{2, 2});
  EXPECT_EQ(frames.number(), 2u);
  const NewestFrame::Frame* frame = frames.TakeIfNewerThan(0);
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(frame->jpeg, (Bytes{2, 2}));
  EXPECT_EQ(frame->number, 2u);
  EXPECT_EQ(frames.TakeIfNewerThan(2), nullptr);
  frames.GiveBack(frame);
  EXPECT_NE(frames.TakeIfNewerThan(1), nullptr);
}

TEST(NewestFrame, KeepsFramesThatAreHeld) {
  NewestFrame frames;
  std::vector<const NewestFrame::Frame*> held;
  for (uint8_t i = 1; i <= 5; ++i) {
    frames.Put(Bytes{i});
    held.push_back(frames.TakeIfNewerThan(0));
    held.push_back(frames.TakeIfNewerThan(0));
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(held[i]->jpeg, Bytes{static_cast<uint8_t>(i / 2 + 1)});
  }
  for (const NewestFrame::Frame* frame : held) frames.GiveBack(frame);
}

TEST(NewestFrame, UsesItsBuffersAgain) {
  NewestFrame frames;
  std::set<const uint8_t*> buffers;
  const NewestFrame::Frame* held = nullptr;
  uint64_t seen = 0;
  for (int i = 0; i < 1000; ++i) {
    frames.Put(Bytes(1000));
    const NewestFrame::Frame* frame = frames.TakeIfNewerThan(seen);
    ASSERT_NE(frame, nullptr);
    seen = frame->number;
    buffers.insert(frame->jpeg.data());
    if (i % 3 == 0) {  // one reader is slow
      if (held != nullptr) frames.GiveBack(held);
      held = frame;
    } else {
      frames.GiveBack(frame);
    }
  }
  EXPECT_LE(buffers.size(), 4u);
}

TEST(NewestFrame, NeverShowsAFrameThatIsBeingWritten) {
  NewestFrame frames;
  // Large enough that the writer spends its time with bytes rather than with the lock.
  const auto size_of = [](uint64_t number) { return 20'000 + number % 50; };
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      frames.Put(Bytes(size_of(i), static_cast<uint8_t>(i)));
      std::this_thread::yield();
    }
  });
  uint64_t seen = 0;
  for (int read = 0; read < 300;) {
    const NewestFrame::Frame* frame = frames.TakeIfNewerThan(seen);
    if (frame == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ++read;
    EXPECT_GT(frame->number, seen);
    seen = frame->number;
    EXPECT_EQ(frame->jpeg, Bytes(size_of(seen), static_cast<uint8_t>(seen)));
    frames.GiveBack(frame);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace atollrt
