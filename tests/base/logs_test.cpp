#include "base/logs.h"

#include <gtest/gtest.h>

namespace magneto::base {
namespace {

using Level = Logs::Level;

TEST(Logs, NamesAreToldMoreOrNotAtAll) {
  Logs logs;
  EXPECT_EQ(logs.set("graph_breaks, +recompiles,fusion"), std::vector<std::string>());
  EXPECT_EQ(logs.level(Log::kGraphBreaks), Level::kOn);
  EXPECT_EQ(logs.level(Log::kRecompiles), Level::kMore);
  EXPECT_EQ(logs.level(Log::kGuards), Level::kOff);
  EXPECT_EQ(logs.set("-fusion,,"), std::vector<std::string>());
  EXPECT_FALSE(logs.tells(Log::kFusion));
  EXPECT_TRUE(logs.tells(Log::kGraphBreaks));  // what is not named stays
  logs.clear();
  EXPECT_FALSE(logs.tells(Log::kGraphBreaks));
}

TEST(Logs, NamesOfOthersStandForOurs) {
  Logs logs;
  EXPECT_EQ(logs.set("dynamo,+schedule,nobody,distributed"), (std::vector<std::string>{"nobody", "distributed"}));
  EXPECT_TRUE(logs.tells(Log::kGraphBreaks) && logs.tells(Log::kRecompiles));
  EXPECT_EQ(logs.level(Log::kPlan), Level::kMore);
  logs.clear();
  logs.set("all,-loop");
  const std::vector<Log> loop = {Log::kLoop}, some = {Log::kLoop, Log::kPlan};
  EXPECT_FALSE(logs.tells_any(loop));
  EXPECT_TRUE(logs.tells_any(some));
}

TEST(Logs, EachNameIsThereOnceAndSaysWhatItMeans) {
  EXPECT_EQ(log_names().size(), kLogs);
  for (size_t k = 0; k < kLogs; ++k) {
    EXPECT_FALSE(log_names()[k].meaning.empty());
    Logs logs;
    EXPECT_TRUE(logs.set(log_names()[k].name).empty());
    for (size_t other = 0; other < kLogs; ++other) EXPECT_EQ(logs.tells(static_cast<Log>(other)), other == k);
  }
}

TEST(Logs, ALineStaysALine) {
  static std::vector<std::string> told;
  told.clear();
  Logs logs;
  logs.set("graph,+verify");
  logs.set_sink(
      [](Log, Level level, const std::string& text) { told.push_back((level == Level::kMore ? "+" : "") + text); });
  logs.tell(Log::kGraph, "forward", "graph {\n}\n");
  logs.tell(Log::kVerify, "", "one thing");
  EXPECT_EQ(told, (std::vector<std::string>{"graph, forward\ngraph {\n}", "+verify: one thing"}));
}

}  // namespace
}  // namespace magneto::base
