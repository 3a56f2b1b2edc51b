// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/picture_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/picture_models.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Shape kPicture = {1, 4, 64, 1};

// Every pixel value once.
Image AllPixels() {
  Image image;
  image.Reshape(64, 4, 1);
  std::iota(image.pixels.begin(), image.pixels.end(), uint8_t{0});
  return image;
}

// What pixel p becomes in the input, as stored.
template <typename T>
std::vector<T> Stored(const ModelBuilder& m, const PixelScaling& scaling = {}) {
  const PreparedModel model(m);
  const auto input = PictureInput::Create(model.get(), scaling);
  EXPECT_TRUE(input.ok()) << input.status().message();
  if (!input.ok()) return {};
  const Status status = input->Write(AllPixels());
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<T> stored(256);
  std::memcpy(stored.data(), AtollTensorData(AtollInterpreterGetInputTensor(model.get(), 0)),
              stored.size() * sizeof(T));
  return stored;
}

TEST(PictureInput, StretchesBlackToWhiteOverAQuantizedInput) {
  for (const float scale : {0.0f, 0.0078125f, 3.0f}) {
    const auto bytes = Stored<uint8_t>(ModelWithInput(kPicture, DataType::kUInt8, scale, 17));
    const auto chars = Stored<int8_t>(ModelWithInput(kPicture, DataType::kInt8, scale, -17));
    for (int p = 0; p < 256; ++p) {
      EXPECT_EQ(bytes[static_cast<size_t>(p)], p);
      EXPECT_EQ(chars[static_cast<size_t>(p)], p - 128);
    }
  }
}

TEST(PictureInput, StretchesBlackToWhiteOverMinusOneToOneInAFloatInput) {
  const auto stored = Stored<float>(ModelWithInput(kPicture, DataType::kFloat32, 0, 0));
  EXPECT_EQ(stored[0], -1.0f);
  EXPECT_EQ(stored[255], 1.0f);
}

TEST(PictureInput, QuantizesScaledPixelsWithTheInputsOwnParameters) {
  const PixelScaling scaling = {.mean = 100, .std = 50};
  const auto floats = Stored<float>(ModelWithInput(kPicture, DataType::kFloat32, 0, 0), scaling);
  EXPECT_EQ(floats[0], -2.0f);
  EXPECT_EQ(floats[200], 2.0f);
  const auto chars =
      Stored<int8_t>(ModelWithInput(kPicture, DataType::kInt8, 0.0625f, 10), scaling);
  EXPECT_EQ(chars[100], 10);
  EXPECT_EQ(chars[200], 10 + 32);
  EXPECT_EQ(chars[0], 10 - 32);
  const auto bytes =
      Stored<uint8_t>(ModelWithInput(kPicture, DataType::kUInt8, 0.005f, 0), scaling);
  EXPECT_EQ(bytes[0], 0);      // clamped
  EXPECT_EQ(bytes[101], 4);    // 0.02 / 0.005
  EXPECT_EQ(bytes[255], 255);  // clamped
}

TEST(PictureInput, TakesEitherOfMeanAndStdAlone) {
  const ModelBuilder m = ModelWithInput(kPicture, DataType::kFloat32, 0, 0);
  EXPECT_EQ(Stored<float>(m, {.mean = 55, .std = {}})[255], 200.0f);
  EXPECT_EQ(Stored<float>(m, {.mean = {}, .std = 255})[255], 1.0f);
}

TEST(PictureInput, RefusesOtherInputs) {
  const auto refusal = [](const ModelBuilder& m, const PixelScaling& scaling = {}) {
    const PreparedModel model(m);
    return PictureInput::Create(model.get(), scaling).status();
  };
  EXPECT_THAT(refusal(ModelWithInput({1, 4, 64, 4}, DataType::kInt8, 1, 0)).message(),
              HasSubstr("[1,4,64,4]"));
  EXPECT_THAT(refusal(ModelWithInput({2, 4, 64, 3}, DataType::kInt8, 1, 0)).message(),
              HasSubstr("[2,4,64,3]"));
  EXPECT_THAT(refusal(ModelWithInput({1, 64}, DataType::kInt8, 1, 0)).message(),
              HasSubstr("[1,64]"));
  EXPECT_THAT(refusal(ModelWithInput(kPicture, DataType::kInt32, 0, 0)).message(),
              HasSubstr("int32"));
  EXPECT_THAT(refusal(DetectorModel(2)).message(), HasSubstr("2 inputs"));
  const Status unscaled =
      refusal(ModelWithInput(kPicture, DataType::kUInt8, 0, 0), {.mean = 1, .std = 2});
  EXPECT_EQ(unscaled.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unscaled.message(), HasSubstr("no scale"));
}

TEST(PictureInput, RefusesPicturesOfAnotherSize) {
  const PreparedModel model(ModelWithInput(kPicture, DataType::kUInt8, 1, 0));
  const auto input = PictureInput::Create(model.get());
  ASSERT_TRUE(input.ok());
  Image image;
  image.Reshape(64, 4, 3);
  EXPECT_THAT(input->Write(image).message(),
              AllOf(HasSubstr("64 x 4 x 1"), HasSubstr("64 x 4 x 3")));
  image = AllPixels();
  image.pixels.pop_back();
  EXPECT_FALSE(input->Write(image).ok());
}

}  // namespace
}  // namespace atollrt
