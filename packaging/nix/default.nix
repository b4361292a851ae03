# nix-build: Weber with the packages of <nixpkgs>
{ pkgs ? import <nixpkgs> { } }:

pkgs.callPackage ./package.nix { }
