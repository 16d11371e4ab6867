#include "reproduce/measured.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const unsigned measured_grid_threads[] = {12, 24, 36, 48, 60, 72, 84, 96};
const unsigned measured_grid_outstanding[] = {1, 4, 8, 16, 24, 32};

/* SMART Fig. 4 */
const double measured_grid[][MEASURED_GRID_THREADS][MEASURED_GRID_OUTSTANDING] = {
    [MEASURED_READ] =
        {
            {5.103, 13.591, 21.799, 31.122, 36.984, 40.367},
            {10.020, 26.023, 41.835, 60.763, 69.242, 76.986},
            {14.336, 38.457, 61.294, 86.276, 97.830, 104.209},
            {18.520, 48.747, 75.472, 102.509, 111.123, 103.987},
            {22.309, 58.152, 89.197, 111.045, 104.962, 85.735},
            {25.847, 66.897, 98.616, 107.140, 96.071, 73.152},
            {29.500, 74.276, 108.366, 92.207, 86.449, 62.448},
            {32.969, 81.563, 110.982, 78.111, 76.959, 55.161},
        },
    [MEASURED_WRITE] =
        {
            {4.991, 13.247, 20.298, 29.547, 35.191, 38.741},
            {9.673, 25.321, 38.779, 54.745, 65.455, 72.566},
            {13.672, 36.807, 56.543, 79.467, 86.502, 91.355},
            {17.387, 45.865, 68.566, 85.832, 84.194, 69.884},
            {21.052, 53.124, 75.788, 92.728, 66.205, 65.107},
            {24.054, 59.322, 81.577, 66.975, 64.123, 63.594},
            {27.183, 64.741, 86.294, 64.484, 63.428, 62.943},
            {30.188, 71.221, 89.542, 62.787, 62.984, 63.052},
        },
};

const unsigned measured_threads[] = {1, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96};

/* SMART Fig. 3 */
const double measured_doorbells[][MEASURED_DOORBELLS][MEASURED_THREADS] =
    {
        [MEASURED_READ] =
            {
                [MEASURED_OWN] = {1.809, 14.535, 28.710, 42.083, 55.201, 64.302, 75.383, 84.567,
                                  90.325, 99.422, 105.486, 109.850, 111.177},
                [MEASURED_SHARED] = {1.917, 14.821, 29.036, 39.037, 39.085, 32.282, 29.433, 23.344,
                                     23.003, 21.410, 20.838, 20.006, 19.158},
            },
        [MEASURED_WRITE] =
            {
                [MEASURED_OWN] =
                    {1.704,
                     13.882, 27.256, 39.073, 50.329, 59.882, 68.782, 73.555, 78.399, 81.075, 84.441, 89.061, 90.553},
                [MEASURED_SHARED] =
                    {
                        1.816,
                        13.982, 27.229, 35.927, 37.444, 30.924, 29.244, 23.307, 23.565, 21.465, 20.450, 19.667, 19.133},
            },
};

/* SMART Fig. 8; updates: Fig. 14 */
const double measured_race[][MEASURED_DOORBELLS][MEASURED_THREADS] =
    {
        [MEASURED_C] =
            {
                [MEASURED_OWN] = {0.561, 4.462, 8.627, 12.063, 15.786, 18.338, 20.559, 22.233,
                                  23.138, 23.574, 23.678, 23.719, 23.856},
                [MEASURED_SHARED] = {0.571, 4.318, 6.727, 10.158, 10.435, 10.038, 11.502, 8.803,
                                     8.132, 8.278, 7.629, 6.891, 6.455},
            },
        [MEASURED_A] =
            {
                [MEASURED_OWN] =
                    {0.325, 2.683, 4.535, 5.347, 5.533, 5.553, 5.643, 5.498, 5.468, 5.323, 5.321,
                     5.306, 5.234},
                [MEASURED_SHARED] =
                    {0.341, 2.799, 1.584, 0.689, 0.518, 0.482, 0.407, 0.305, 0.251, 0.218, 0.203,
                     0.204, 0.201},
            },
        [MEASURED_UPDATE] =
            {
                [MEASURED_OWN] = {0.233, NAN, 2.698, NAN, 2.962, NAN, 2.947, NAN, 2.806, NAN, 2.744,
                                  2.716, 2.663},
                [MEASURED_SHARED] = {0.234, NAN, 2.351, NAN, 1.134, NAN, 0.391, NAN, 0.223, NAN,
                                     0.178, 0.171, 0.176},
            },
};

double measured_error(double measured, double model)
{
    return model / measured - 1;
}

void measured_add(struct measured_errors *e, double error)
{
    ASSERT(e->count < MEASURED_ERRORS_MAX);
    e->error[e->count++] = fabs(error);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measured_worst(const struct measured_errors *e)
{
    double worst = e->count > 0 ? 0 : NAN;
    for (unsigned i = 0; i < e->count && !isnan(worst); i++)
        if (!(e->error[i] <= worst))
            worst = e->error[i];
    return worst;
}

double measured_median(const struct measured_errors *e)
{
    double sorted[MEASURED_ERRORS_MAX];
    if (isnan(measured_worst(e)))
        return NAN;
    memcpy(sorted, e->error, e->count * sizeof *sorted);
    qsort(sorted, e->count, sizeof *sorted, compare);
    return (sorted[(e->count - 1) / 2] + sorted[e->count / 2]) / 2;
}
