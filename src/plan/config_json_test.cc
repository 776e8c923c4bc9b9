#include "plan/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using testing::HasSubstr;

TEST(SettingsJson, NumbersWithAnExponentAreNumbers) {
  EXPECT_THAT(settings_json({.min_accuracy = 1e-5}), HasSubstr("\"min_accuracy\": 1e-05,"));
}

TEST(SettingsJson, HasWordsListsPairsAndNull) {
  const std::string text = settings_json({.sensitive_layer_names = {"a.*", "b\"c"}, .layer_bit_widths = {{"x", 8}, {"y.*", 16}}});
  EXPECT_THAT(text, HasSubstr("\"deployment_profile\": \"local\","));
  EXPECT_THAT(text, HasSubstr("\"bit_width\": 4,"));
  EXPECT_THAT(text, HasSubstr("\"fail_fast\": false,"));
  EXPECT_THAT(text, HasSubstr("\"modality\": null,"));
  EXPECT_THAT(text, HasSubstr(R"("sensitive_layer_names": ["a.*", "b\"c"],)"));
  EXPECT_THAT(text, HasSubstr(R"("layer_bit_widths": {"x": 8, "y.*": 16})"));
}

TEST(SettingsJson, LeavesOutWhatNoByteDependsOn) {
  EXPECT_EQ(settings_json({.num_threads = 1, .max_memory_limit = std::uint64_t{64} << 20}), settings_json({.num_threads = 2}));
}

}  // namespace
}  // namespace ballast
