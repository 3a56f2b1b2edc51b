// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/deepstack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/serve/frigate/pictures.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr char kFormType[] = "multipart/form-data; boundary=b";

std::string Form(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string form;
  for (const auto& [name, value] : fields) {
    form += "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
  }
  return form + "--b--\r\n";
}

std::string Base64(std::string_view bytes) {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

class Deepstack : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded = ObjectDetector::Load(ScenesModel(), {}, 1);
    ASSERT_TRUE(loaded.ok());
    detector_ = *std::move(loaded);
    // Much larger than the input, so that pixels are told from fractions and from the input's.
    picture_ = MadeUpPicture(3 * kScenesWidth, 2 * kScenesHeight, 3);
    const auto jpeg = EncodeJpeg(picture_, 95);
    jpeg_ = std::string((*jpeg).begin(), (*jpeg).end());
    const Image input = *Resize(*DecodeImage(*jpeg), kScenesWidth, kScenesHeight);
    found_ = *detector_->Detect(input, 0.01f,
                                std::chrono::steady_clock::now() + std::chrono::minutes(5));
    ASSERT_GT(found_.size(), 3u);
  }
  static void TearDownTestSuite() { detector_.reset(); }

  static DeepstackService Service(std::string api_key = "") {
    DeepstackOptions options;
    options.api_key = std::move(api_key);
    options.models = {{"scenes", detector_, {"T-shirt", "Trouser"}}, {"other.v2", detector_, {}}};
    auto service = DeepstackService::Create(std::move(options));
    EXPECT_TRUE(service.ok());
    return *std::move(service);
  }
  static Json Ask(const DeepstackService& service, const VisionRequest& request, int status = 200) {
    const VisionAnswer answer = service.Answer(request);
    EXPECT_EQ(answer.status, status) << answer.body;
    const Json json = Json::parse(answer.body, nullptr, false);
    EXPECT_TRUE(json.is_object()) << answer.body;
    return json;
  }
  static Json Post(const DeepstackService& service, std::string_view path, const std::string& body,
                   int status = 200) {
    return Ask(service, {"POST", path, kFormType, body}, status);
  }

  static inline std::shared_ptr<ObjectDetector> detector_;
  static inline Image picture_;
  static inline std::string jpeg_;
  static inline std::vector<Detection> found_;
};

TEST_F(Deepstack, PredictionsAreInPixelsOfThePostedPicture) {
  const Json answer = Post(Service(), "/v1/vision/detection",
                           Form({{"api_key", ""}, {"min_confidence", "0.01"}, {"image", jpeg_}}));
  EXPECT_EQ(answer["success"], true);
  EXPECT_EQ(answer["code"], 200);
  EXPECT_TRUE(answer["inferenceMs"].is_number_integer());
  ASSERT_THAT(answer["predictions"], SizeIs(std::min<size_t>(found_.size(), 20)));
  EXPECT_EQ(answer["count"], answer["predictions"].size());
  for (size_t i = 0; i < answer["predictions"].size(); ++i) {
    const Json& one = answer["predictions"][i];
    EXPECT_EQ(one["confidence"].get<float>(), found_[i].score);
    EXPECT_EQ(one["x_min"], std::lround(found_[i].left * static_cast<float>(picture_.width)));
    EXPECT_EQ(one["y_min"], std::lround(found_[i].top * static_cast<float>(picture_.height)));
    EXPECT_EQ(one["x_max"], std::lround(found_[i].right * static_cast<float>(picture_.width)));
    EXPECT_EQ(one["y_max"], std::lround(found_[i].bottom * static_cast<float>(picture_.height)));
    const int index = found_[i].class_index;
    EXPECT_EQ(one["label"], index == 0   ? "t-shirt"
                            : index == 1 ? "trouser"
                                         : "class " + std::to_string(index));
  }
}

TEST_F(Deepstack, OnlyWhatIsConfidentEnough) {
  const auto count = [&](float least) {
    return std::count_if(found_.begin(), found_.end(),
                         [&](const Detection& one) { return one.score >= least; });
  };
  const auto ask = [&](const std::string& path, const std::string& least) {
    std::vector<std::pair<std::string, std::string>> fields = {{"image", jpeg_}};
    if (!least.empty()) fields.emplace_back("min_confidence", least);
    return Post(Service(), path, Form(fields))["predictions"].size();
  };
  const std::string path = "/v1/vision/detection";
  EXPECT_EQ(ask(path, ""), count(0.4f));
  EXPECT_EQ(ask(path + "/", "0.4"), count(0.4f));
  EXPECT_EQ(ask(path, "1"), 0u);
  EXPECT_EQ(ask(path, "0"), 20u);  // of 60 that the model has
  EXPECT_EQ(ask("/v1/vision/custom/other.v2", "0.1"), count(0.1f));
}

TEST_F(Deepstack, SaysWhatIsWrongInItsOwnForm) {
  const DeepstackService service = Service();
  const std::string path = "/v1/vision/detection";
  const auto refused = [&](const std::string& body, int status, const char* words) {
    const Json answer = Post(service, path, body, status);
    EXPECT_EQ(answer["success"], false);
    EXPECT_EQ(answer["code"], status);
    EXPECT_THAT(answer["error"].get<std::string>(), HasSubstr(words));
  };
  refused("", 400, "boundary");
  refused(Form({}), 400, "no file 'image'");
  refused(Form({{"image", "no picture"}}), 400, "image: ");
  refused(Form({{"image", jpeg_.substr(0, jpeg_.size() / 2)}}), 400, "image: ");
  for (const char* confidence : {"x", "-1", "1.1", "nan", "0.4 ", "inf"}) {
    refused(Form({{"image", jpeg_}, {"min_confidence", confidence}}), 400, "min_confidence");
  }
  // 1 x 1 pixels that say they are 60000 x 60000.
  refused(Form({{"image", "P6 60000 60000 255\n\1\1\1"}}), 413, "60000");
  Ask(service, {"POST", path, "application/json", "{}"}, 400);
  Ask(service, {"GET", path, "", ""}, 405);
  Ask(service, {"POST", "/v1/vision/face", kFormType, Form({})}, 404);
  Ask(service, {"POST", "/v1/vision/custom/none", kFormType, Form({{"image", jpeg_}})}, 404);
  Ask(service, {"POST", "/v1/vision/custom/..%2f", kFormType, Form({{"image", jpeg_}})}, 404);
  const std::string large(DeepstackService::kMaxBodyBytes + 1, 'x');
  Ask(service, {"POST", path, kFormType, large}, 413);
}

TEST_F(Deepstack, AKeyIsAskedFor) {
  const DeepstackService service = Service("secret");
  const std::string path = "/v1/vision/detection";
  Post(service, path, Form({{"image", jpeg_}}), 401);
  for (const char* key : {"", "s", "secre", "secretsecret", "Secret"}) {
    Post(service, path, Form({{"api_key", key}, {"image", jpeg_}}), 401);
  }
  Post(service, path, Form({{"api_key", "secret"}, {"image", jpeg_}}));
  Ask(service, {"POST", "/detect", "application/json", R"({"data": "AA"})"}, 401);
}

TEST_F(Deepstack, AnswersWhoAsksWhatItIs) {
  const DeepstackService service = Service();
  EXPECT_EQ(Ask(service, {"GET", "/v1/status/ping", "", ""}), Json({{"success", true}}));
  EXPECT_THAT(Ask(service, {"POST", "/v1/vision/custom/list", "", ""})["models"],
              ElementsAre("scenes", "other.v2"));
  const Json detectors = Ask(service, {"GET", "/detectors", "", ""})["detectors"];
  ASSERT_THAT(detectors, SizeIs(2));
  EXPECT_EQ(detectors[0]["name"], "scenes");
  EXPECT_EQ(detectors[0]["width"], kScenesWidth);
  EXPECT_THAT(detectors[0]["labels"], ElementsAre("t-shirt", "trouser"));
  for (const char* path : {"/v1/vision/detection", "/v1/vision/custom/a", "/v1/status/ping",
                           "/detect", "/detectors", "/detectors/"}) {
    EXPECT_TRUE(DeepstackService::Serves(path)) << path;
  }
  for (const char* path : {"", "/", "/v2/health/live", "/v1/vision/detectio", "/detectx"}) {
    EXPECT_FALSE(DeepstackService::Serves(path)) << path;
  }
}

TEST_F(Deepstack, Doods) {
  const DeepstackService service = Service();
  const auto ask = [&](const Json& body, int status = 200) {
    const std::string text = body.dump();
    return Ask(service, {"POST", "/detect", "application/json", text}, status);
  };
  Json body = {
      {"id", "7"}, {"detector_name", "default"}, {"data", Base64(jpeg_)}, {"detect", {{"*", 1}}}};
  Json answer = ask(body);
  EXPECT_EQ(answer["id"], "7");
  ASSERT_THAT(answer["detections"], SizeIs(found_.size()));
  for (size_t i = 0; i < found_.size(); ++i) {
    const Json& one = answer["detections"][i];
    EXPECT_EQ(one["top"].get<float>(), found_[i].top);
    EXPECT_EQ(one["left"].get<float>(), found_[i].left);
    EXPECT_EQ(one["bottom"].get<float>(), found_[i].bottom);
    EXPECT_EQ(one["right"].get<float>(), found_[i].right);
    EXPECT_EQ(one["confidence"].get<float>(), 100 * found_[i].score);
  }
  // Only a class, and only that.
  const std::string label = answer["detections"][0]["label"];
  body["detect"] = {{label, 1}};
  answer = ask(body);
  EXPECT_GT(answer["detections"].size(), 0u);
  for (const Json& one : answer["detections"]) EXPECT_EQ(one["label"], label);

  body["detector_name"] = "none";
  EXPECT_THAT(ask(body, 404)["error"].get<std::string>(), HasSubstr("/detectors"));
  body["detector_name"] = "scenes";
  body["regions"] = {{{"top", 0}}};
  ask(body, 400);
  body.erase("regions");
  body["data"] = "?";
  ask(body, 400);
  body["data"] = "AAAA";
  EXPECT_EQ(ask(body, 400)["id"], "7");
  body.erase("data");
  ask(body, 400);
  for (const std::string& text : {std::string("["), std::string("null"), std::string(100'000, '['),
                                  "{\"a\":[" + std::string(100'000, ',') + "]}"}) {
    Ask(service, {"POST", "/detect", "application/json", text}, 400);
  }
}

TEST_F(Deepstack, NamesOfModelsFitIntoAddresses) {
  EXPECT_FALSE(DeepstackService::Create({}).ok());
  for (const char* name : {"", "a/b", "a b", "list", "\xc3\xa4"}) {
    DeepstackOptions options;
    options.models = {{name, detector_, {}}};
    EXPECT_FALSE(DeepstackService::Create(std::move(options)).ok()) << name;
  }
  DeepstackOptions twice;
  twice.models = {{"a", detector_, {}}, {"a", detector_, {}}};
  EXPECT_FALSE(DeepstackService::Create(std::move(twice)).ok());
}

TEST(ClassNames, AreLinesOrNumbered) {
  EXPECT_THAT(ParseClassNames("\xEF\xBB\xBFperson\r\n2 wheels\n\ncar\n\n"),
              ElementsAre("person", "2 wheels", "", "car"));
  EXPECT_THAT(ParseClassNames("0  person\n2: car\n"), ElementsAre("person", "", "car"));
  EXPECT_THAT(ParseClassNames(""), ElementsAre());
  EXPECT_THAT(ParseClassNames("99999999999 a"), ElementsAre("99999999999 a"));
}

}  // namespace
}  // namespace atollrt
