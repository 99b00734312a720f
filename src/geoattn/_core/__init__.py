"""What every part of geoattn needs: errors, argument checks, atomic files, progress, versions."""
