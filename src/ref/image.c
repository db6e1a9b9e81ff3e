#include "ref/ref.h"

#include <math.h>

void ref_image_colour(const float *matrix, const double rgba[4], double colour[4], double magnitude[4])
{
    for (int c = 0; c < 4; c++) {
        colour[c] = rgba[c];
        magnitude[c] = 0;
        if (c == 3 || !matrix)
            continue;
        const float *row = matrix + 4 * c;
        colour[c] = row[3];
        magnitude[c] = fabs((double)row[3]);
        for (int i = 0; i < 3; i++) {
            colour[c] += row[i] * rgba[i];
            magnitude[c] += fabs(row[i] * rgba[i]);
        }
    }
}
