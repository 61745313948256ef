// graph/text_internal.h: what the printer and the parser share.
#pragma once
#include <string>
#include <string_view>

namespace magneto::graph {

std::string quote(std::string_view text);  ///< "..." with \" \\ \n \xNN

}  // namespace magneto::graph
