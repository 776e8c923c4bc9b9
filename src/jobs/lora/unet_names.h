#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ballast {

// The name that a module of a UNet2DConditionModel of diffusers has in the files of Stable Diffusion 1, 2 and XL, by which Kohya
// names it for these: input_blocks.4.1.proj_in for down_blocks.1.attentions.0.proj_in. Empty if it has none. `has` says whether
// a module of the UNet starts with a name.
std::string original_unet_name(std::string_view module, const std::function<bool(std::string_view head)>& has);

}  // namespace ballast
