"""The colours of the pictures: read by the renderer, which paints with them, and by the judge,
which looks for them.

Channels are red, green, blue in 0..1, float32. Indices are those of scene.py.
"""
import numpy as np


def _bytes(rows: list) -> np.ndarray:
    """Colours written as 0..255, in 0..1."""
    return np.array(rows, np.float32) / 255


# [8, 3] what a thing of each colour is painted with
THINGS = _bytes([(222, 40, 44), (247, 128, 22), (250, 208, 34), (34, 165, 68),
                 (10, 180, 170), (45, 85, 225), (135, 55, 200), (240, 80, 160)])
# [3, 3] how each sky tints what it lights
TINT = np.array([(1, 1, 1), (1, .93, .88), (.80, .82, .92)], np.float32)
# [3, 3, 3] each sky at the top, half way down, at the horizon
SKY = _bytes([[(92, 168, 236), (150, 205, 246), (212, 236, 250)],
              [(104, 88, 160), (226, 140, 150), (255, 208, 150)],
              [(16, 20, 48), (36, 44, 80), (66, 76, 116)]])
# [3, 4, 2, 3] each ground under each sky, far and near
GROUND = _bytes([[[(164, 206, 116), (112, 166, 82)], [(244, 218, 168), (222, 184, 132)],
                  [(250, 252, 255), (214, 228, 246)], [(122, 178, 208), (84, 138, 184)]],
                 [[(170, 176, 104), (118, 130, 78)], [(246, 200, 156), (210, 154, 124)],
                  [(252, 232, 232), (220, 200, 224)], [(206, 160, 170), (128, 112, 160)]],
                 [[(70, 108, 96), (40, 68, 66)], [(142, 128, 136), (98, 88, 106)],
                  [(172, 186, 220), (128, 144, 190)], [(70, 92, 128), (46, 62, 92)]]])
BROWN = _bytes([124, 96, 78])      # trunks, doors, ropes
CREAM = _bytes([255, 244, 218])    # stems, dots, windows by day
LAMP = _bytes([255, 228, 150])     # windows at night
