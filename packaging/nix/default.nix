# nix-build: Weber with the packages of <nixpkgs>, from the release or from a local archive
{ pkgs ? import <nixpkgs> { }, archive ? null }:

pkgs.callPackage ./package.nix
  (pkgs.lib.optionalAttrs (archive != null) { weberArchive = archive; })
