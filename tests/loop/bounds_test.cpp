// Programs and the places that are not proved to lie inside. `# where` gives the conditions.
#include "loop/bounds.h"

#include <gtest/gtest.h>

#include <sstream>

#include "loop/text.h"
#include "loop/verify.h"
#include "text_cases.h"

namespace magneto::loop {
namespace {

std::vector<types::Condition> conditions_of(const std::string& text) {
  std::vector<types::Condition> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# where ")) continue;
    std::string_view rest = std::string_view(line).substr(8);
    types::Condition made;
    made.left = types::take_expr(rest).value();
    rest.remove_prefix(rest.find_first_not_of(' '));
    const std::pair<std::string_view, types::Relation> signs[] = {{"==", types::Relation::kEq},
                                                                  {"!=", types::Relation::kNe},
                                                                  {"<=", types::Relation::kLe},
                                                                  {"<", types::Relation::kLt}};
    for (const auto& [sign, relation] : signs)
      if (rest.starts_with(sign)) {
        made.relation = relation;
        rest.remove_prefix(sign.size() + 1);
        made.right = types::take_expr(rest).value();
        found.push_back(made);
        break;
      }
  }
  return found;
}

TEST(Bounds, PlacesThatAreNotProved) {
  expect_text_cases(MAGNETO_TEST_DIR "/bounds", [](const std::string& input, const std::filesystem::path& path) {
    const Program program = parse(input.substr(input.find("loop {")));
    EXPECT_EQ(verify(program), std::vector<std::string>()) << path;
    std::string text;
    for (const Unproved& place : unproved_places(program, conditions_of(input)))
      text += place.what + "\n    in " + place.where + "\n";
    return text;
  });
}

}  // namespace
}  // namespace magneto::loop
