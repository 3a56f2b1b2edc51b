// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/flexbuffer.h"

#include <flatbuffers/flexbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/tflite/custom_options.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;
using ::testing::HasSubstr;

// A block of exactly the size, so that the sanitizers see every byte read beyond it.
Result<std::vector<FlexbufferEntry>> ReadExact(std::span<const uint8_t> bytes) {
  static std::unique_ptr<uint8_t[]> block;  // keys lie in it
  block.reset(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), block.get());
  return ReadFlexbufferMap({block.get(), bytes.size()});
}

// flatbuffers' own writer of the map that `fill` makes.
template <typename Fill>
Bytes Write(Fill fill) {
  flexbuffers::Builder builder;
  builder.Map([&] { fill(&builder); });
  builder.Finish();
  return builder.GetBuffer();
}

Bytes Detection() {
  return Write([](flexbuffers::Builder* b) {
    b->Int("max_detections", 10);
    b->Int("max_classes_per_detection", 1);
    b->Int("num_classes", 90);
    b->Bool("use_regular_nms", true);
    b->Float("nms_score_threshold", 1e-8f);
    b->Float("nms_iou_threshold", 0.6f);
    b->Float("y_scale", 10);
    b->Float("x_scale", 10);
    b->Float("h_scale", 5);
    b->Float("w_scale", 5);
    b->String("comment", "no number");
  });
}

const FlexbufferEntry* Find(const std::vector<FlexbufferEntry>& entries, const std::string& key) {
  for (const FlexbufferEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

TEST(Flexbuffer, ReadsEveryKindOfNumber) {
  const auto entries = ReadExact(Write([](flexbuffers::Builder* b) {
    b->Int("int", -3);
    b->UInt("uint", 70000);
    b->Float("float", 0.25f);
    b->Double("double", 1e300);
    b->Bool("bool", true);
    b->IndirectInt("indirect_int", INT64_MIN);
    b->IndirectUInt("indirect_uint", UINT64_MAX);
    b->IndirectFloat("indirect_float", -2.75f);
    b->String("text", "12");
  }));
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  EXPECT_EQ(entries->size(), 8u);
  EXPECT_EQ(Find(*entries, "int")->integer, -3);
  EXPECT_EQ(Find(*entries, "int")->real, -3.0);
  EXPECT_EQ(Find(*entries, "uint")->integer, 70000);
  EXPECT_EQ(Find(*entries, "float")->real, 0.25);
  EXPECT_EQ(Find(*entries, "float")->integer, 0);
  EXPECT_EQ(Find(*entries, "double")->integer, INT64_MAX);
  EXPECT_EQ(Find(*entries, "bool")->integer, 1);
  EXPECT_EQ(Find(*entries, "indirect_int")->integer, INT64_MIN);
  EXPECT_EQ(Find(*entries, "indirect_uint")->integer, INT64_MAX);
  EXPECT_EQ(Find(*entries, "indirect_float")->integer, -2);
  EXPECT_EQ(Find(*entries, "text"), nullptr);
}

TEST(Flexbuffer, AnEmptyMapHasNoEntries) {
  const auto entries = ReadExact(Write([](flexbuffers::Builder*) {}));
  ASSERT_TRUE(entries.ok());
  EXPECT_TRUE(entries->empty());
}

TEST(Flexbuffer, RefusesRootsThatAreNoMap) {
  flexbuffers::Builder builder;
  builder.Int(5);
  builder.Finish();
  EXPECT_EQ(ReadExact(builder.GetBuffer()).status().message(),
            "the 3 bytes of its options are no valid FlexBuffers map");
}

// Prefixes end in other bytes, which may happen to describe a small map; none may be read beyond.
TEST(Flexbuffer, SurvivesEveryPrefix) {
  const Bytes good = Detection();
  ASSERT_TRUE(ReadExact(good).ok());
  int refused = 0;
  for (size_t size = 0; size < good.size(); ++size) {
    if (!ReadExact(std::span(good).first(size)).ok()) ++refused;
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) * 9 / 10);
}

TEST(Flexbuffer, SurvivesEveryChangedByte) {
  const Bytes good = Detection();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      Bytes bad = good;
      bad[i] = static_cast<uint8_t>(value);
      Node node;
      node.custom_name = "TFLite_Detection_PostProcess";
      node.custom_options = bad;
      const Status status = ReadCustomOptions(&node);
      EXPECT_EQ(status.ok(), status.message().empty());
    }
  }
}

TEST(Flexbuffer, ReadsStringsBlobsAndTheLengthsOfVectors) {
  const Bytes blob = {0, 1, 2, 0xFF};
  const Bytes map = Write([&](flexbuffers::Builder* b) {
    b->String("text", "a\0b");
    b->Key("blob");
    b->Blob(blob.data(), blob.size());
    b->Int("number", 3);
    b->Vector("none", [] {});
    b->Vector("two", [b] {
      b->Int(1);
      b->String("x");
    });
    b->TypedVector("three", [b] {
      for (int i = 0; i < 3; ++i) b->Int(i);
    });
  });
  const auto entries = ReadFlexbufferBytes(map);
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 5u);  // in the order of keys
  EXPECT_EQ((*entries)[0].key, "blob");
  EXPECT_EQ(Bytes((*entries)[0].bytes.begin(), (*entries)[0].bytes.end()), blob);
  EXPECT_EQ((*entries)[1].key, "none");
  EXPECT_TRUE((*entries)[1].is_vector);
  EXPECT_EQ((*entries)[1].elements, 0u);
  EXPECT_EQ((*entries)[2].key, "text");
  EXPECT_FALSE((*entries)[2].is_vector);
  EXPECT_EQ((*entries)[2].bytes.size(), 1u);
  EXPECT_EQ((*entries)[3].elements, 3u);
  EXPECT_EQ((*entries)[4].elements, 2u);
}

TEST(Flexbuffer, StringsAndBlobsSurviveEveryPrefixAndChangedByte) {
  const Bytes good = Write([](flexbuffers::Builder* b) {
    b->String("1", "some text");
    b->Vector("2", [b] { b->Int(1); });
  });
  for (size_t size = 0; size < good.size(); ++size) {
    std::unique_ptr<uint8_t[]> block(new uint8_t[size]);
    std::copy_n(good.begin(), size, block.get());
    (void)ReadFlexbufferBytes({block.get(), size}).ok();
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      Bytes bad = good;
      bad[i] = static_cast<uint8_t>(value);
      const auto entries = ReadFlexbufferBytes(bad);
      if (!entries.ok()) continue;
      for (const FlexbufferBytes& entry : *entries) {
        EXPECT_LE(entry.bytes.size(), bad.size());
        if (entry.bytes.empty()) continue;
        EXPECT_GE(entry.bytes.data(), bad.data());
        EXPECT_LE(entry.bytes.data() + entry.bytes.size(), bad.data() + bad.size());
      }
    }
  }
}

// ---- The operators' options ---------------------------------------------------------------------

std::string Refusal(const std::string& name, const Bytes& bytes) {
  Node node;
  node.custom_name = name;
  node.custom_options = bytes;
  return ReadCustomOptions(&node).message();
}

TEST(CustomOptions, ReadsThoseOfDetections) {
  const Bytes bytes = Detection();
  Node node;
  node.custom_name = "TFLite_Detection_PostProcess";
  node.custom_options = bytes;
  ASSERT_TRUE(ReadCustomOptions(&node).ok());
  const auto& options = std::get<DetectionOptions>(node.options);
  EXPECT_EQ(options.max_detections, 10);
  EXPECT_EQ(options.detections_per_class, 100) << "the default";
  EXPECT_TRUE(options.use_regular_nms);
  EXPECT_EQ(options.iou_threshold, 0.6f);
  EXPECT_EQ(options.w_scale, 5.0f);
}

TEST(CustomOptions, NameWhatIsMissingOrOutOfRange) {
  const auto posenet = [](int detections, float radius) {
    return Write([&](flexbuffers::Builder* b) {
      b->Int("max_detections", detections);
      b->Int("stride", 16);
      b->Float("nms_radius", radius);
    });
  };
  EXPECT_EQ(Refusal("PosenetDecoderOp", posenet(0, 10)), "max_detections is 0, must be 1 to 32768");
  EXPECT_EQ(Refusal("PosenetDecoderOp", posenet(5, 10)), "option score_threshold is missing");
  EXPECT_THAT(Refusal("TFLite_Detection_PostProcess", {}), HasSubstr("the 0 bytes"));
  EXPECT_EQ(Refusal("SomethingElse", {1, 2, 3}), "");
}

}  // namespace
}  // namespace atollrt
