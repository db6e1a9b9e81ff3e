/* What macOS has and glibc lacks; included before each file. */
int issetugid(void);
