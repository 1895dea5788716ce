// SPDX-License-Identifier: Apache-2.0
// The page's style sheet and the point shapes that gnuplot's pictures refer to.
#pragma once

extern const char *const style_sheet;
extern const char *const style_shapes;
