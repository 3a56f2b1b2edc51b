// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As json.dumps of Python writes them.
constexpr char kRequest[] = R"({"model_request": true, "model_name": "model.tflite"})";
constexpr char kData[] = R"({"model_data": true, "model_name": "model.tflite"})";
constexpr char kFrame[] = R"({"shape": [1, 300, 320, 3], "dtype": "uint8", "model_type": "ssd"})";

FrameHead HeadOf(std::array<int32_t, 4> shape, FrameHead::Values values) {
  FrameHead head;
  head.shape = shape;
  head.values = values;
  return head;
}

template <typename T>
std::span<const uint8_t> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

TEST(FrigateExchange, ReadsWhatFrigateWrites) {
  const auto request = ParseMessageHead(kRequest);
  ASSERT_TRUE(request.ok());
  ASSERT_TRUE(request->model.has_value());
  EXPECT_FALSE(request->frame.has_value());
  EXPECT_EQ(request->model->kind, ModelHead::Kind::kRequest);
  EXPECT_EQ(request->model->name, "model.tflite");

  const auto data = ParseMessageHead(kData);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->model->kind, ModelHead::Kind::kData);

  const auto frame = ParseMessageHead(kFrame);
  ASSERT_TRUE(frame.ok());
  ASSERT_TRUE(frame->frame.has_value());
  EXPECT_THAT(frame->frame->shape, ElementsAre(1, 300, 320, 3));
  EXPECT_EQ(frame->frame->values, FrameHead::Values::kBytes);
  EXPECT_EQ(frame->frame->model_type, "ssd");
  EXPECT_EQ(frame->frame->byte_size(), 288000u);
  // Without a type of the model, as older versions have it.
  EXPECT_TRUE(ParseMessageHead(R"({"shape": [1, 3, 9, 9], "dtype": "float32"})").ok());
}

TEST(FrigateExchange, WritesWhatFrigateReads) {
  EXPECT_EQ(ModelRequestAnswer(true, false), R"({"model_available":true,"model_loaded":false})");
  EXPECT_EQ(ModelDataAnswer(false, true), R"({"model_loaded":true,"model_saved":false})");
  EXPECT_EQ(RowsHead(), R"({"dtype":"float32","shape":[20,6]})");
}

TEST(FrigateExchange, RefusesHeadsThatAreNone) {
  const std::string long_name(200, 'a');
  const std::string long_head = R"({"x": ")" + std::string(5000, 'x') + R"("})";
  for (const std::string& head :
       {std::string(),
        std::string("{"),
        std::string("[1]"),
        std::string("null"),
        std::string("\xff\xfe"),
        std::string(4000, '['),
        long_head,
        std::string("{}"),
        std::string(R"({"shape": [1, 300, 300], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 300, 300, 3, 1], "dtype": "uint8"})"),
        std::string(R"({"shape": [2, 300, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, -1, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 0, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 3.5, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 18446744073709551615, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 1e400, 300, 3], "dtype": "uint8"})"),
        std::string(R"({"shape": ["1", "300", "300", "3"], "dtype": "uint8"})"),
        std::string(R"({"shape": [1, 300, 300, 3], "dtype": "float64"})"),
        std::string(R"({"shape": [1, 300, 300, 3], "dtype": 8})"),
        std::string(R"({"shape": [1, 300, 300, 3]})"),
        std::string(R"({"model_request": true})"),
        std::string(R"({"model_request": true, "model_name": 7})"),
        std::string(R"({"model_request": true, "model_name": "../model.tflite"})"),
        std::string(R"({"model_request": true, "model_name": "a\\b"})"),
        std::string(R"({"model_request": true, "model_name": "a\u0000b"})"),
        std::string(R"({"model_request": true, "model_name": ".."})"),
        R"({"model_data": true, "model_name": ")" + long_name + R"("})"}) {
    const auto parsed = ParseMessageHead(head);
    EXPECT_FALSE(parsed.ok()) << head;
    EXPECT_EQ(parsed.code(), StatusCode::kInvalidArgument) << head;
  }
  // Still known to be about a model, and to be answered as such.
  EXPECT_EQ(KindOfModelHead(R"({"model_data": true, "model_name": "../x"})"),
            ModelHead::Kind::kData);
  EXPECT_EQ(KindOfModelHead(R"({"model_request": 1})"), std::nullopt);
  EXPECT_EQ(KindOfModelHead("x"), std::nullopt);
}

TEST(FrigateExchange, AFrameIsAPictureInAllLayoutsAndTypes) {
  // Two rows of three pixels.
  const std::vector<uint8_t> last = {0,  1,  2,  10, 11, 12, 20,  21,  22,
                                     50, 51, 52, 60, 61, 62, 253, 254, 255};
  std::vector<uint8_t> first(last.size());
  std::vector<float> floats_last, floats_first(last.size());
  for (size_t i = 0; i < last.size(); ++i) {
    first[i % 3 * 6 + i / 3] = last[i];
    floats_last.push_back(static_cast<float>(last[i]) / 255);
    floats_first[i % 3 * 6 + i / 3] = static_cast<float>(last[i]) / 255;
  }
  using enum FrameHead::Values;
  Image image;
  for (const auto& [head, bytes] :
       {std::pair(HeadOf({1, 2, 3, 3}, kBytes), BytesOf(last)),
        std::pair(HeadOf({1, 3, 2, 3}, kBytes), BytesOf(first)),
        std::pair(HeadOf({1, 2, 3, 3}, kFloats), BytesOf(floats_last)),
        std::pair(HeadOf({1, 3, 2, 3}, kFloats), BytesOf(floats_first))}) {
    image = {};
    ASSERT_TRUE(FrameToImage(head, bytes, 3, 2, &image).ok());
    EXPECT_EQ(image.width, 3);
    EXPECT_EQ(image.height, 2);
    EXPECT_EQ(image.channels, 3);
    EXPECT_EQ(image.pixels, last);
  }
}

TEST(FrigateExchange, FloatsAreRoundedAndNothingElseThanLevels) {
  using enum FrameHead::Values;
  Image image;
  const FrameHead head = HeadOf({1, 1, 1, 3}, kFloats);
  // 0.4999 and 0.5001 levels; and a little too much.
  ASSERT_TRUE(
      FrameToImage(head, BytesOf<float>({0.4999f / 255, 0.5001f / 255, 1.001f}), 1, 1, &image)
          .ok());
  EXPECT_THAT(image.pixels, ElementsAre(0, 1, 255));
  for (const float value : {1.01f, -0.01f, 128.0f, NAN, INFINITY, -INFINITY, 1e38f}) {
    const Status status = FrameToImage(head, BytesOf<float>({0, value, 0}), 1, 1, &image);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << value;
    EXPECT_THAT(status.message(), HasSubstr("input_dtype"));
  }
}

TEST(FrigateExchange, AFrameForAnotherModelSaysWhatToChange) {
  using enum FrameHead::Values;
  Image image;
  const std::vector<uint8_t> bytes(300 * 300 * 3);
  const Status status =
      FrameToImage(HeadOf({1, 300, 300, 3}, kBytes), BytesOf(bytes), 320, 320, &image);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("320 x 320"));
  for (const size_t size : {size_t{0}, bytes.size() - 1}) {
    const Status cut = FrameToImage(HeadOf({1, 300, 300, 3}, kBytes),
                                    BytesOf(bytes).subspan(0, size), 300, 300, &image);
    EXPECT_THAT(cut.message(), HasSubstr("270000"));
  }
  // The largest that a head can say.
  EXPECT_FALSE(CheckFrame(HeadOf({65535, 65535, 65535, 65535}, kFloats), 3, 300, 300).ok());
}

}  // namespace
}  // namespace atollrt
