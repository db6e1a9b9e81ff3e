vcpkg_download_distfile(archive
    URLS "@URL@"
    FILENAME "clattn-@VERSION@.tar.gz"
    SHA512 @SHA512@)
vcpkg_extract_source_archive(source ARCHIVE "${archive}")
vcpkg_configure_meson(
    SOURCE_PATH "${source}"
    OPTIONS
        -Dopencl=dlopen
        -Dio=enabled
        -Dpictures=disabled
        -Dclblast=disabled
        -Dcommand=disabled
        -Dpng=disabled
        -Dutf8proc=disabled
        -Dspeech=disabled
        -Dsentencepiece=disabled
        -Dfrei0r=disabled
        -Dgegl=disabled
        -Dmpi=disabled
        -Donnxruntime=disabled
        -Dgtk=disabled
        -Dtests=disabled)
vcpkg_install_meson()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/clattn)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${source}/LICENSE")
