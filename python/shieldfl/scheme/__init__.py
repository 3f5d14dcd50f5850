"""What the faces of all encryption schemes share; users import ``shieldfl.ckks`` or ``shieldfl.paillier``."""
