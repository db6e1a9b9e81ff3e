/* Non-local means in double precision, by the definition: what clattn_denoiser computes. */
#ifndef TESTS_PICTURES_MEANS_H
#define TESTS_PICTURES_MEANS_H

#include <stddef.h>

#include <clattn/pictures.h>

/* A component of a picture, black 0 and white 1. */
double component_of(const clattn_picture *picture, size_t y, size_t x, size_t component);

/* Cleans the colours of pixel (y, x): grey, or red, green and blue. */
void means_of(const clattn_picture *picture, size_t patch, size_t radius, double strength, size_t y, size_t x,
              double colours[3]);

#endif
