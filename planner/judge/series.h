// SPDX-License-Identifier: Apache-2.0
// Robust fit of one series of (payload, time): latency, asymptotic bandwidth, saturation, with
// standard errors. docs/method.md §calibration.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct series_point {
    double sent_bytes; // what one rank sends: payload x ring factor
    double payload_bytes;
    double seconds;
};

// t = latency + sent / bandwidth x (1 + sqrt(half / payload)); half = 0 in the two-parameter law.
struct series_law {
    double latency_s, bytes_per_s, half_bytes;
    // Standard errors of the logarithms (relative errors); 0 for half_bytes when it is not fitted.
    double latency_error, bandwidth_error, half_error;
    double scatter; // robust relative residual (1.48 x median absolute)
    double min_payload_bytes, max_payload_bytes;
    size_t points;
    bool saturates;
};

#define SERIES_PIECES_MAX 2
struct series_fit {
    struct series_law pieces[SERIES_PIECES_MAX]; // two where an algorithm switches
    size_t piece_count;
    double cross_validation; // mean relative error of left-out points
};

// At least 3 distinct payloads, else ERR_RESOURCE (a required measurement is missing).
bool series_fit(const struct series_point *points, size_t count, struct arena *a,
                struct series_fit *out, struct err *e);
double series_seconds(const struct series_law *l, double payload_bytes, double sent_bytes);
// By the piece that holds the payload.
double series_fit_seconds(const struct series_fit *f, double payload_bytes, double sent_bytes);
